//! The promises this driver can be told to break, one at a time.

/// Declares the sabotages: a variant, its name on the command line, the promise it breaks, and the bug it is.
macro_rules! sabotages {
    ($($variant:ident $name:literal $promise:literal $bug:literal)*) => {
        /// One small, real bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "`bug` says what each is")]
        pub enum Sabotage {
            $($variant,)*
        }

        impl Sabotage {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The id of the promise it breaks.
            pub fn promise(self) -> &'static str {
                match self { $(Self::$variant => $promise,)* }
            }

            /// What the bug is, in one sentence.
            pub fn bug(self) -> &'static str {
                match self { $(Self::$variant => $bug,)* }
            }
        }
    };
}

sabotages! {
    UnpublishLeavesMount "unpublish-leaves-mount" "DRV-060"
        "NodeUnpublishVolume answers OK and leaves the target mounted."
    UnstageSucceedsButMounted "unstage-succeeds-but-mounted" "DRV-070"
        "NodeUnstageVolume answers OK and leaves the staging path mounted."
    PublishIgnoresReadOnly "publish-ignores-read-only" "DRV-050"
        "NodePublishVolume mounts a read-only volume for writing."
    PublishWrongVolume "publish-wrong-volume" "DRV-051"
        "NodePublishVolume shows another volume that is staged on the node, if there is one, else an empty one."
    BlockTargetIsRegularFile "block-target-is-regular-file" "DRV-052"
        "NodePublishVolume of a raw device binds a regular file to the target."
}

impl std::str::FromStr for Sabotage {
    type Err = UnknownSabotage;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|sabotage| sabotage.name() == name).ok_or_else(|| UnknownSabotage {
            name: name.to_owned(),
            nearest: Self::ALL
                .iter()
                .map(|sabotage| sabotage.name())
                .max_by(|one, other| {
                    strsim::jaro_winkler(one, name).total_cmp(&strsim::jaro_winkler(other, name))
                })
                .unwrap_or_default(),
        })
    }
}

/// There is no sabotage of that name.
#[derive(Debug, thiserror::Error)]
#[error("there is no sabotage `{name}`; the nearest is `{nearest}`")]
pub struct UnknownSabotage {
    name: String,
    nearest: &'static str,
}

//! Kernel modules in the order in which they must be loaded.
//!
//! Debian's packages carry no `modules.dep`. Instead of running depmod, the dependencies are read from the `.modinfo`
//! section of each module.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use crate::unpack::{plain_name, unpacked};

/// The modules of one kernel, as its packages hold them.
#[derive(Debug, Default)]
pub struct Modules {
    files: BTreeMap<String, Vec<u8>>,
    built_in: BTreeSet<String>,
}

/// A module, ready to be loaded.
#[derive(Debug)]
pub struct Module {
    /// Its name, with underscores.
    pub name: String,
    /// The object, unpacked.
    pub object: Vec<u8>,
}

/// An error while modules are put in order.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The kernel has no such module, built in or not.
    #[error("the kernel has no module `{name}`{}", for_whom(needed_by))]
    Missing {
        name: String,
        /// The module that depends on it; empty if the caller named it.
        needed_by: String,
    },
    /// Its object could not be unpacked or read.
    #[error("cannot read module `{name}`")]
    Damaged { name: String, source: io::Error },
}

fn for_whom(needed_by: &str) -> String {
    if needed_by.is_empty() { String::new() } else { format!(", which `{needed_by}` needs") }
}

impl Modules {
    /// Adds a file of a kernel package, if it is a module or the list of built-in modules.
    pub fn take(&mut self, path: &str, data: Vec<u8>) {
        let Some((_, file)) = path.rsplit_once('/') else { return };
        if file == "modules.builtin" {
            let names = String::from_utf8_lossy(&data);
            self.built_in = names.lines().filter_map(|line| module_name(line.rsplit('/').next()?)).collect();
        } else if let Some(name) = module_name(file) {
            self.files.insert(name, data);
        }
    }

    /// Whether [`Modules::take`] uses a package's file.
    pub fn wants(path: &str) -> bool {
        path.ends_with("/modules.builtin") || plain_name(path).ends_with(".ko")
    }

    /// The named modules and all they depend on, in loading order; those built in are left out.
    ///
    /// A soft dependency that the kernel lacks is no error: a module only asks to be loaded after it if it is there.
    pub fn order(&self, names: &[&str]) -> Result<Vec<Module>, ModuleError> {
        let mut order = Order { modules: self, seen: BTreeSet::new(), out: Vec::new() };
        for name in names {
            order.visit(name, "")?;
        }
        Ok(order.out)
    }

    /// Whether the kernel has a module, built in or to be loaded.
    pub fn has(&self, name: &str) -> bool {
        let name = name.replace('-', "_");
        self.built_in.contains(&name) || self.files.contains_key(&name)
    }
}

struct Order<'a> {
    modules: &'a Modules,
    seen: BTreeSet<String>,
    out: Vec<Module>,
}

impl Order<'_> {
    fn visit(&mut self, name: &str, needed_by: &str) -> Result<(), ModuleError> {
        let name = name.replace('-', "_");
        if self.modules.built_in.contains(&name) || !self.seen.insert(name.clone()) {
            return Ok(());
        }
        let Some(packed) = self.modules.files.get(&name) else {
            return Err(ModuleError::Missing { name, needed_by: needed_by.to_owned() });
        };
        let damaged = |source| ModuleError::Damaged { name: name.clone(), source };
        let object = unpack(packed).map_err(damaged)?;
        let info = modinfo(&object).map_err(damaged)?;
        for dependency in info.hard {
            self.visit(&dependency, &name)?;
        }
        for dependency in info.soft.iter().filter(|soft| self.modules.has(soft)) {
            self.visit(dependency, &name)?;
        }
        self.out.push(Module { name, object });
        Ok(())
    }
}

/// `virtio-blk.ko.xz` is the module `virtio_blk`.
fn module_name(file: &str) -> Option<String> {
    plain_name(file).strip_suffix(".ko").map(|name| name.replace('-', "_"))
}

fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut object = Vec::new();
    unpacked(packed)?.read_to_end(&mut object)?;
    Ok(object)
}

struct Info {
    hard: Vec<String>,
    soft: Vec<String>,
}

/// The dependencies in the `.modinfo` section: `depends=a,b` and `softdep=pre: c d post: e`.
fn modinfo(object: &[u8]) -> io::Result<Info> {
    let elf = goblin::elf::Elf::parse(object).map_err(io::Error::other)?;
    let section = elf
        .section_headers
        .iter()
        .find(|header| elf.shdr_strtab.get_at(header.sh_name) == Some(".modinfo"))
        .and_then(|header| object.get(header.file_range()?))
        .ok_or_else(|| io::Error::other("it has no .modinfo section"))?;
    let mut info = Info { hard: Vec::new(), soft: Vec::new() };
    for field in section.split(|byte| *byte == 0) {
        let field = String::from_utf8_lossy(field);
        if let Some(names) = field.strip_prefix("depends=") {
            info.hard.extend(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
        } else if let Some(words) = field.strip_prefix("softdep=") {
            let pre = words.split("post:").next().unwrap_or_default();
            info.soft.extend(pre.split_whitespace().filter(|word| *word != "pre:").map(str::to_owned));
        }
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_endings_and_their_dashes() {
        assert_eq!(module_name("virtio-blk.ko.xz").as_deref(), Some("virtio_blk"));
        assert_eq!(module_name("virtio-blk.ko.zst").as_deref(), Some("virtio_blk"));
        assert_eq!(module_name("nfsd.ko").as_deref(), Some("nfsd"));
        assert_eq!(module_name("modules.order"), None);
    }

    #[test]
    fn built_in_module_is_not_loaded() {
        let mut modules = Modules::default();
        modules.take("lib/modules/v/modules.builtin", b"kernel/fs/ext4/ext4.ko\n".to_vec());
        assert!(modules.has("ext4"));
        assert!(modules.order(&["ext4"]).unwrap().is_empty());
    }

    #[test]
    fn module_that_the_kernel_lacks_is_named_in_the_error() {
        let error = Modules::default().order(&["dm-dust"]).unwrap_err();
        assert_eq!(error.to_string(), "the kernel has no module `dm_dust`");
    }
}

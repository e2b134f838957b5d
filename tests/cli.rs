//! The output and the exit codes for all user errors before the first case.
//!
//! Each run must also leave nothing behind: no process, mount, loop device or file. `UPDATE_EXPECT=1` rewrites
//! the snapshots; read them as a new user would.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use expect_test::{Expect, expect};
use tests::{Residue, Volproof, built, has_root};

/// Runs the program, compares its output, and looks for leftovers.
fn check(run: impl FnOnce(Volproof) -> Volproof, expected: Expect) {
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let ended = run(Volproof::new().env(name, &mark)).run();
    expected.assert_eq(&ended.told());
    ended.leaves_nothing(&before, &mark, Duration::from_secs(10));
}

/// Checks a run with a manifest and the other files that the driver needs.
fn check_manifest(manifest: &str, expected: Expect) {
    check(|volproof| volproof.file("driver.toml", manifest).args("run --driver driver.toml"), expected);
}

#[test]
fn an_unknown_command_names_the_nearest() {
    check(
        |volproof| volproof.args("rum"),
        expect![[r#"
        exit 2
        --- stderr
        error: unrecognized subcommand 'rum'

          tip: a similar subcommand exists: 'run'

        Usage: volproof [OPTIONS] <COMMAND>

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn an_unknown_flag_names_the_nearest() {
    check(
        |volproof| volproof.args("run --tire host"),
        expect![[r#"
        exit 2
        --- stderr
        error: unexpected argument '--tire' found

          tip: a similar argument exists: '--tier'

        Usage: volproof run --tier <TIER> [FILTER]...

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn two_drivers_are_one_too_many() {
    check(
        |volproof| volproof.args("run --driver a.toml --socket b.sock"),
        expect![[r#"
        exit 2
        --- stderr
        error: the argument '--driver <FILE>' cannot be used with '--socket <PATH>'

        Usage: volproof run --driver <FILE> [FILTER]...

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn a_manifest_of_the_cluster_tests_starts_no_driver() {
    check(
        |volproof| volproof.args("run --testdriver testdriver.yaml"),
        expect![[r#"
        exit 2
        --- stderr
        error: cannot start a driver from --testdriver alone: it does not say how

          hint: add --driver-cmd './my-driver --endpoint={endpoint}', or --socket of one that runs
    "#]],
    );
}

#[test]
fn an_unknown_case_selects_nothing() {
    check(
        |volproof| volproof.args("run csi::publish::read_onyl"),
        expect![[r#"
            exit 3
            --- stderr
            error: no case matches `csi::publish::read_onyl`
              nearest: csi::publish::read_only_claim_cannot_be_written
                       csi::publish::read_only_target_that_is_there_cannot_be_written
                       csi::publish::volume_is_published_again_by_itself

              hint: `volproof list` shows all cases
        "#]],
    );
}

#[test]
fn a_shard_that_cannot_be_is_refused() {
    check(
        |volproof| volproof.args("run --shard 5/4"),
        expect![[r#"
        exit 2
        --- stderr
        error: invalid value '5/4' for '--shard <I/N>': expected I/N with 1 ≤ I ≤ N, such as 2/4

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn no_seeds_play_nothing() {
    check(
        |volproof| volproof.args("sim --seeds 0"),
        expect![[r#"
            exit 3
            --- stderr
            error: --seeds 0 plays nothing
        "#]],
    );
}

#[test]
fn seeds_beyond_the_last_are_refused() {
    check(
        |volproof| volproof.args("sim --first-seed 18446744073709551615 --seeds 2"),
        expect![[r#"
            exit 2
            --- stderr
            error: --first-seed and --seeds go beyond the last seed, 18446744073709551615
        "#]],
    );
}

#[test]
fn a_kernel_without_a_guest_means_nothing() {
    check(
        |volproof| volproof.args("run --kernel all --tier host"),
        expect![[r#"
        exit 2
        --- stderr
        error: --kernel chooses the kernels of guests, and means nothing without --tier vm
    "#]],
    );
}

#[test]
fn a_manifest_that_is_not_there() {
    check(
        |volproof| volproof.args("run --driver nowhere.toml"),
        expect![[r#"
        exit 2
        --- stderr
        error: cannot read `nowhere.toml`
          No such file or directory (os error 2)

          hint: `volproof init nowhere.toml` writes one with comments
    "#]],
    );
}

#[test]
fn a_manifest_that_is_no_toml() {
    check_manifest(
        "name = \"a.example.com\"\ncommand = [\"./driver\"\n",
        expect![[r#"
        exit 2
        --- stderr
        error: cannot use `driver.toml`, line 2, column 22
          unclosed array, expected `]`
    "#]],
    );
}

#[test]
fn unknown_name_to_explain_has_the_nearest() {
    check(
        |volproof| volproof.args("explain DRV-999"),
        expect![[r#"
        exit 3
        --- stderr
        error: nothing here is called `DRV-999`
          nearest: DRV-099
                   DRV-009
                   DRV-019

          hint: `volproof explain` lists promises, invariants, needs and words of reports, `volproof list` the cases
    "#]],
    );
}

#[test]
fn unknown_kernel_has_all_by_version() {
    check(
        |volproof| volproof.args("vm fetch 9.9"),
        expect![[r#"
        exit 2
        --- stderr
        error: no kernel is called `9.9`; there are 5.10, 6.1, 6.12, 6.18
    "#]],
    );
}

#[test]
fn report_of_no_directory_has_a_hint() {
    check(
        |volproof| volproof.args("report nosuchdir"),
        expect![[r#"
        exit 2
        --- stderr
        error: cannot read `nosuchdir/results.json`
          No such file or directory (os error 2)

          hint: name a directory that `volproof run --report DIR` wrote
    "#]],
    );
}

#[test]
fn driver_that_exits_silently_has_a_hint() {
    check(
        |volproof| volproof.args("run --driver-cmd false"),
        expect![[r#"
        exit 4
        --- stderr
        error: cannot use the driver: it exited at once (status 1)

          hint: it printed nothing; start its command by hand, with a more detailed log
    "#]],
    );
}

#[test]
fn lines_fit_the_terminal() {
    check(
        |volproof| volproof.env("COLUMNS", "40").args("explain DRV-999"),
        expect![[r#"
            exit 3
            --- stderr
            error: nothing here is called `DRV-999`
              nearest: DRV-099
                       DRV-009
                       DRV-019

              hint: `volproof explain` lists
              promises, invariants, needs and words
              of reports, `volproof list` the cases
        "#]],
    );
}

#[test]
fn an_unknown_key_names_the_nearest() {
    check_manifest(
        "name = \"a.example.com\"\ncomand = [\"./driver\"]\n",
        expect![[r#"
        exit 2
        --- stderr
        error: cannot use `driver.toml`, line 2, column 1
          unknown key `comand`

          hint: did you mean `command`?
    "#]],
    );
}

#[test]
fn a_value_of_the_wrong_kind() {
    check_manifest(
        "name = \"a.example.com\"\ncommand = [\"./driver\"]\n[volume]\nsize = \"lots\"\n",
        expect![[r#"
            exit 2
            --- stderr
            error: cannot use `driver.toml`, line 4, column 8
              cannot read `lots` as a size; write it like `64MiB`
        "#]],
    );
}

#[test]
fn neither_command_nor_socket() {
    check_manifest(
        "name = \"a.example.com\"\n",
        expect![[r#"
        exit 2
        --- stderr
        error: cannot use `driver.toml`: it names none of `command`, `image` and `socket`

          hint: add `command = ["./my-driver", "--endpoint={endpoint}", "--nodeid={node}"]`
    "#]],
    );
}

#[test]
fn an_expected_failure_of_no_case() {
    check_manifest(
        "name = \"a.example.com\"\ncommand = [\"./driver\"]\n[expected_failures]\n\"csi::publish::nothing\" = \"x\"\n",
        expect![[r#"
            exit 2
            --- stderr
            error: [expected_failures] names `csi::publish::nothing`, and there is no such case
              nearest: csi::publish::read_only_claim_cannot_be_written
                       csi::publish::read_only_target_that_is_there_cannot_be_written
                       csi::publish::volume_is_published_again_by_itself
        "#]],
    );
}

#[test]
fn a_driver_that_does_not_exist() {
    if has_root() {
        check(
            |volproof| volproof.args("run").arg("--driver-cmd").arg("./no-such-driver {socket}"),
            expect![[r#"
                exit 4
                --- stderr
                error: cannot start the driver: there is no command `<here>/no-such-driver`

                  hint: a path is relative to the directory of the manifest, with `--driver-cmd` to the current one; a name without `/` is looked up in PATH
            "#]],
        );
    }
}

#[test]
fn a_driver_that_exits_at_once() {
    if has_root() {
        check(
            |volproof| {
                let says = "sh -c 'echo cannot find the volume group >&2; exit 7'";
                volproof.args("run").arg("--driver-cmd").arg(says)
            },
            expect![[r#"
                exit 4
                --- stderr
                error: cannot use the driver: it exited at once (status 7)
                  its last words:
                    cannot find the volume group
            "#]],
        );
    }
}

#[test]
fn a_driver_that_never_opens_its_socket() {
    if !has_root() {
        return;
    }
    let manifest =
        "name = \"a.example.com\"\ncommand = [\"sleep\", \"1000\"]\n[timeouts]\nstart = \"300ms\"\n";
    let ended = Volproof::new().file("driver.toml", manifest).args("run --driver driver.toml").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    assert!(
        ended.stderr.contains("`/var/lib/volproof/drv/csi.sock` did not appear within 300ms"),
        "{}",
        ended.told()
    );
    // On a busy machine the load is named as well.
    let hint = "the command has to name the socket of the driver: add `{socket}` or `{endpoint}` to it";
    assert!(ended.stderr.contains(hint), "{}", ended.told());
    let sooner = Volproof::new().file("driver.toml", manifest);
    let sooner = sooner.args("run --driver driver.toml --start-timeout 200ms").run();
    assert!(sooner.stderr.contains("did not appear within 200ms"), "{}", sooner.told());
}

#[test]
fn a_driver_with_another_name() {
    if has_root() {
        let fake = format!("{:?}", tests::built().display().to_string());
        check_manifest(
            &format!(
                "name = \"other.example.com\"\ncommand = [{fake}, \"__fake-csi\", \"--endpoint={{endpoint}}\", \
                 \"--node={{node}}\", \"--state-dir={{state}}\"]\n"
            ),
            expect![[r#"
                exit 4
                --- stderr
                error: cannot use the driver: it calls itself `fake.csi.volproof.dev`, but the manifest says `other.example.com`

                  hint: correct `name` in the manifest, or leave it out
            "#]],
        );
    }
}

/// Completions, the manual page, and the explained words of reports.
#[test]
fn completions_manual_and_words_are_there() {
    let said = |args: &[&str]| {
        let ended = args.iter().fold(Volproof::new(), |run, arg| run.arg(arg)).run();
        assert_eq!(ended.code, Some(0), "{}", ended.told());
        ended.stdout
    };
    for (shell, text) in
        [("bash", "_volproof()"), ("zsh", "#compdef volproof"), ("fish", "complete -c volproof")]
    {
        assert!(said(&["completions", shell]).contains(text), "{shell}");
    }
    let page = said(&["man"]);
    for text in [".TH volproof 1", ".SH \"VOLPROOF PLAY\"", "\\-\\-allow\\-host\\-path", "130  interrupted"] {
        assert!(page.contains(text), "{text}\n{page}");
    }
    assert!(said(&["explain", "STAGE_UNSTAGE_VOLUME"]).contains("a capability of CSI"));
    assert!(said(&["explain", "leaves groups"]).starts_with("LeavesGroups "));
    let both = said(&["explain", "lanes", "DRV-055"]);
    assert!(both.contains("a word in reports") && both.contains("DRV-055   binds the driver"), "{both}");
    assert!(said(&["explain", "nfsd"]).contains("volproof doctor"));
    let words = said(&["explain"]).split_once("Words in reports\n").expect("they are listed").1.to_owned();
    let words: Vec<&str> = words.lines().map_while(|line| line.strip_prefix("  ")).collect();
    assert!(words.len() > 30, "{words:?}");
    let explained = said(&[&["explain"], words.as_slice()].concat());
    words
        .iter()
        .for_each(|word| assert!(explained.contains(&format!("{word}   a word in reports")), "{word}"));
    let unknown = Volproof::new().args("list --promisses").run();
    assert!(unknown.stderr.contains("'--promises'"), "{}", unknown.told());
    let unlike = Volproof::new().args("explain --promises").run();
    assert!(!unlike.stderr.contains("as a value"), "{}", unlike.told());
    let misspelled = Volproof::new().arg("rnu").run();
    assert_eq!(misspelled.code, Some(2));
    assert!(misspelled.stderr.contains("similar subcommand exists: 'run'"), "{}", misspelled.told());
}

/// A list that is cut off by a full disk does not end as a whole one. A reader that closes its pipe has seen enough.
#[test]
fn full_standard_output_is_an_error_and_a_closed_one_is_none() {
    let end = |arguments: &str, stdout: Stdio| {
        let mut command = Command::new(built());
        let output = command.args(arguments.split(' ')).stdout(stdout).output().expect("volproof starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for arguments in ["list", "list --format json", "explain", "explain DRV-010", "man", "completions bash"] {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full is there");
        let incomplete =
            "error: standard output is incomplete: No space left on device (os error 28)\n".to_owned();
        assert_eq!(end(arguments, full.into()), (Some(4), incomplete), "{arguments}");
        let (reader, writer) = std::io::pipe().expect("a pipe is made");
        drop(reader);
        assert_eq!(end(arguments, writer.into()), (Some(0), String::new()), "{arguments}");
    }
}

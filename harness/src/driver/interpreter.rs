//! The interpreter of a program: the one that a script names in its first line, or the loader of a program with shared
//! libraries. The kernel reports a missing one as if the program itself were missing.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const ELF: &[u8] = b"\x7fELF\x02\x01";

/// The type of the program header that names the loader.
const PT_INTERP: u32 = 3;

/// The interpreter of a program that is started with these variables, if the interpreter does not exist.
pub(super) fn missing(program: &str, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let interpreter = interpreter(&found(program, env)?)?;
    (!interpreter.exists()).then_some(interpreter)
}

/// The file of a program, which is looked for on `PATH` if its name has no slash.
fn found(program: &str, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program));
    }
    let path = env.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"))?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

fn interpreter(program: &Path) -> Option<PathBuf> {
    let file = File::open(program).ok()?;
    let mut begin = Vec::new();
    (&file).take(256).read_to_end(&mut begin).ok()?;
    let path = match begin.strip_prefix(b"#!") {
        Some(line) => {
            let line = line.split(|byte| *byte == b'\n').next()?;
            line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?.to_vec()
        }
        None => loader(&file, &begin)?,
    };
    Some(PathBuf::from(OsStr::from_bytes(&path)))
}

/// The loader of a 64-bit ELF file.
fn loader(file: &File, begin: &[u8]) -> Option<Vec<u8>> {
    if !begin.starts_with(ELF) {
        return None;
    }
    let headers = number(begin, 32, 8)?;
    let (size, count) = (number(begin, 54, 2)?, number(begin, 56, 2)?);
    for at in 0..count {
        let mut header = [0; 56];
        file.read_exact_at(&mut header, headers.checked_add(at * size)?).ok()?;
        if number(&header, 0, 4)? == u64::from(PT_INTERP) {
            let mut path = vec![0; usize::try_from(number(&header, 32, 8)?.min(4096)).ok()?];
            file.read_exact_at(&mut path, number(&header, 8, 8)?).ok()?;
            path.truncate(path.iter().position(|byte| *byte == 0)?);
            return Some(path);
        }
    }
    None
}

/// A number in little-endian order.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let mut whole = [0; 8];
    whole.get_mut(..length)?.copy_from_slice(bytes.get(at..at + length)?);
    Some(u64::from_le_bytes(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(program: &Path) -> Option<PathBuf> {
        missing(program.to_str().unwrap(), &BTreeMap::new())
    }

    #[test]
    fn missing_interpreter_of_a_script_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("driver");
        for (text, expected) in [
            ("#!/no/python3 -u\n", Some("/no/python3")),
            ("#! /no/sh", Some("/no/sh")),
            ("#!/proc/self/exe\n", None),
            ("no script\n", None),
            ("#!\n", None),
        ] {
            std::fs::write(&script, text).unwrap();
            assert_eq!(of(&script), expected.map(PathBuf::from), "{text}");
        }
    }

    #[test]
    fn program_without_a_slash_is_looked_for_on_its_own_path() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("driver"), "#!/no/python3\n").unwrap();
        let path = format!("/nowhere:{}", directory.path().display());
        let env = BTreeMap::from([("PATH".to_owned(), path)]);
        assert_eq!(missing("driver", &env), Some(PathBuf::from("/no/python3")));
        assert_eq!(missing("no-such-driver", &env), None);
    }

    #[test]
    fn loader_of_a_program_is_read_from_its_header() {
        // A program with one header, which names a loader.
        let mut program = vec![0; 64 + 56];
        program[..6].copy_from_slice(ELF);
        program[32] = 64;
        program[54] = 56;
        program[56] = 1;
        program[64] = 3;
        program[72] = 120;
        let path = b"/lib/no-loader.so\0";
        program[64 + 32] = path.len() as u8;
        program.extend_from_slice(path);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("driver");
        std::fs::write(&file, &program).unwrap();
        assert_eq!(of(&file), Some(PathBuf::from("/lib/no-loader.so")));
        // Cut off anywhere, it is no program, and nothing else happens.
        for length in 0..program.len() {
            std::fs::write(&file, &program[..length]).unwrap();
            assert_eq!(of(&file), None, "{length}");
        }
    }
}

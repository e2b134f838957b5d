//! Secrets taken out of a file that is there already. Changes the files it is given.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{MASK, Masks};

/// The number of bytes that are read at once.
const CHUNK: usize = 1 << 20;

impl Masks {
    /// Hides every secret in a file, which may be larger than memory. A writer that appends to it goes on at its new
    /// end. A
    /// file that is not there holds none.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn hide_in_file(&self, path: &Path) -> io::Result<()> {
        let forms = self.forms();
        let opened = File::options().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path);
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(_) if forms.is_empty() => Ok(()),
            Ok(mut file) => hide(&mut file, path.parent().unwrap_or(Path::new(".")), &forms, CHUNK),
            Err(error) => Err(error),
        }
    }
}

/// `forms` are sorted, the longest first.
fn hide(file: &mut File, directory: &Path, forms: &[String], chunk: usize) -> io::Result<()> {
    let mut hidden = tempfile::tempfile_in(directory)?;
    // A possible beginning of a secret is written with the next part.
    let edge = forms.iter().map(String::len).max().unwrap_or(1) - 1;
    let is_first = first_bytes(forms);
    let (mut window, mut found) = (Vec::new(), false);
    loop {
        let read = (&mut *file).take(chunk as u64).read_to_end(&mut window)?;
        let sure = if read == 0 { window.len() } else { window.len().saturating_sub(edge) };
        let (mut from, mut at) = (0, 0);
        while at < sure {
            let here = |form: &&String| window[at..].starts_with(form.as_bytes());
            match is_first[usize::from(window[at])].then(|| forms.iter().find(here)).flatten() {
                Some(form) => {
                    hidden.write_all(&window[from..at])?;
                    hidden.write_all(MASK.as_bytes())?;
                    (at, found) = (at + form.len(), true);
                    from = at;
                }
                None => at += 1,
            }
        }
        hidden.write_all(&window[from..at])?;
        window.drain(..at);
        if read == 0 {
            break;
        }
    }
    if !found {
        return Ok(());
    }
    hidden.rewind()?;
    file.set_len(0)?;
    file.rewind()?;
    io::copy(&mut hidden, file).map(drop)
}

fn first_bytes(forms: &[String]) -> [bool; 256] {
    let mut first = [false; 256];
    for byte in forms.iter().filter_map(|form| form.bytes().next()) {
        first[usize::from(byte)] = true;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_across_the_edge_of_a_part_is_hidden() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("driver.log");
        let forms = ["hunter2-and-more", "hunter2"].map(str::to_owned);
        for chunk in 1..40 {
            std::fs::write(&path, "0123hunter2 hunter2-and-morehunter2hunter").unwrap();
            let mut file = File::options().read(true).write(true).open(&path).unwrap();
            hide(&mut file, directory.path(), &forms, chunk).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "0123*** ******hunter", "{chunk}");
        }
    }

    #[test]
    fn log_goes_on_behind_what_was_hidden() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("driver.log");
        let mut log = crate::private::append(&path).unwrap();
        log.write_all(b"password hunter2\n").unwrap();
        let masks = Masks::default();
        masks.add("password", "hunter2");
        masks.hide_in_file(&path).unwrap();
        log.write_all(b"more\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "password ***\nmore\n");
        masks.hide_in_file(&directory.path().join("none")).unwrap();
    }
}

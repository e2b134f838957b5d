//! The manual page: the program, then each of its commands.

use std::io::{self, Write};

use clap::Command;
use clap_mangen::Man;

/// Writes one page with all commands.
pub(super) fn write(mut program: Command, out: &mut impl Write) -> io::Result<()> {
    program.build();
    let page = Man::new(program.clone());
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        writeln!(out, ".SH \"{}\"", command.get_bin_name().unwrap_or_default().to_uppercase())?;
        let page = Man::new(command.clone());
        let mut sections = Vec::new();
        page.render_description_section(&mut sections)?;
        page.render_options_section(&mut sections)?;
        // Sections of a command become subsections of its heading.
        let text =
            String::from_utf8_lossy(&sections).replace(".SH DESCRIPTION\n", "").replace(".SH ", ".SS ");
        out.write_all(text.as_bytes())?;
    }
    page.render_extra_section(out)
}

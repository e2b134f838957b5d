//! Which devices the processes of a control group may use: a program that the kernel asks at each use (BPF). Loads and
//! attaches programs, and touches nothing else.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A rule. A field that is `None` matches all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) allow: bool,
    pub(crate) kind: Option<i32>,
    pub(crate) major: Option<i32>,
    pub(crate) minor: Option<i32>,
    pub(crate) access: i32,
}

pub(crate) const MAKE: i32 = 1;
pub(crate) const READ: i32 = 2;
pub(crate) const WRITE: i32 = 4;
pub(crate) const BLOCK: i32 = 1;
pub(crate) const CHARACTER: i32 = 2;

/// Has the kernel ask these rules at each use of a device by a process of a group (version 2). The last one that is about
/// a use decides, and what no rule is about is refused.
///
/// # Errors
/// When the kernel takes no such program.
pub(crate) fn limit(group: &File, rules: &[Rule]) -> io::Result<()> {
    attach(group, &load(&program(rules))?)
}

/// A BPF instruction: operation, registers, jump offset and immediate value.
type Instruction = [u8; 8];

fn instruction(code: u8, to: u8, from: u8, jump: i16, number: i32) -> Instruction {
    let ([low, high], [a, b, c, d]) = (jump.to_le_bytes(), number.to_le_bytes());
    [code, from << 4 | to, low, high, a, b, c, d]
}

/// `r = *(u32 *)(r1 + offset)`: loads a field of the kernel's description of an access.
const LOAD: u8 = 0x61;
const SET: u8 = 0xb7;
const COPY: u8 = 0xbf;
const AND: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const UNLESS_EQUAL: u8 = 0x55;
const UNLESS_SAME: u8 = 0x5d;
const EXIT: u8 = 0x95;

/// The program: the last rule comes first, and the first one that is about the use decides. Nothing is allowed that
/// no rule allows.
fn program(rules: &[Rule]) -> Vec<Instruction> {
    // r2: block or character; r3: the access; r4 and r5: the device numbers.
    let mut program = vec![
        instruction(LOAD, 2, 1, 0, 0),
        instruction(COPY, 3, 2, 0, 0),
        instruction(AND, 2, 0, 0, 0xffff),
        instruction(SHIFT_RIGHT, 3, 0, 0, 16),
        instruction(LOAD, 4, 1, 4, 0),
        instruction(LOAD, 5, 1, 8, 0),
    ];
    for rule in rules.iter().rev() {
        let equal = [(2, rule.kind), (4, rule.major), (5, rule.minor)];
        let mut tests: Vec<[u8; 8]> = Vec::new();
        // The rule must allow each part of the access: reading alone does not allow opening for reading and writing.
        let access = [instruction(COPY, 1, 3, 0, 0), instruction(AND, 1, 0, 0, rule.access)];
        let wanted: Vec<(u8, i32)> =
            equal.into_iter().filter_map(|(register, number)| Some((register, number?))).collect();
        let length =
            i16::try_from(wanted.len() + access.len() + 1 + 2).expect("a rule is a few instructions");
        for (register, number) in wanted {
            let left = length - i16::try_from(tests.len()).expect("a rule is a few instructions") - 1;
            tests.push(instruction(UNLESS_EQUAL, register, 0, left, number));
        }
        tests.extend(access);
        tests.push(instruction(UNLESS_SAME, 1, 3, 2, 0));
        program.extend(tests);
        program.extend([instruction(SET, 0, 0, 0, i32::from(rule.allow)), instruction(EXIT, 0, 0, 0, 0)]);
    }
    program.extend([instruction(SET, 0, 0, 0, 0), instruction(EXIT, 0, 0, 0, 0)]);
    program
}

const PROG_LOAD: libc::c_long = 5;
const PROG_ATTACH: libc::c_long = 8;
const OF_DEVICES: u32 = 15;
const AT_DEVICE_USE: u32 = 6;

/// The beginning of `union bpf_attr` for loading.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
}

/// The beginning of `union bpf_attr` for attaching.
#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    at: u32,
    flags: u32,
}

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let licence = c"Apache-2.0";
    let order = Load {
        kind: OF_DEVICES,
        count: u32::try_from(program.len()).unwrap_or(u32::MAX),
        instructions: program.as_ptr() as u64,
        licence: licence.as_ptr() as u64,
    };
    // SAFETY: the kernel reads the order, the program and the text, all of which live until the call has returned.
    let loaded =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const order, std::mem::size_of::<Load>()) };
    let number = i32::try_from(loaded).ok().filter(|number| *number >= 0);
    let number = number.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn attach(group: &File, program: &OwnedFd) -> io::Result<()> {
    let number = |fd: i32| fd.cast_unsigned();
    let order = Attach {
        target: number(group.as_raw_fd()),
        program: number(program.as_raw_fd()),
        at: AT_DEVICE_USE,
        flags: 0,
    };
    // SAFETY: the kernel reads the order, which lives until the call has returned; both descriptors are open.
    let attached =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_ATTACH, &raw const order, std::mem::size_of::<Attach>()) };
    match attached {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program for an access.
    fn allows(program: &[Instruction], kind: i32, access: i32, major: i32, minor: i32) -> bool {
        let context = [access << 16 | kind, major, minor];
        let mut registers = [0_i64; 6];
        let mut at = 0_usize;
        loop {
            let [code, both, low, high, a, b, c, d] = program[at];
            let (to, from) = (usize::from(both & 0xf), usize::from(both >> 4));
            let (jump, number) =
                (i16::from_le_bytes([low, high]), i64::from(i32::from_le_bytes([a, b, c, d])));
            let leap = |taken: bool| if taken { usize::try_from(jump).unwrap() } else { 0 };
            let mut skipped = 0;
            match code {
                LOAD => registers[to] = i64::from(context[usize::try_from(jump).unwrap() / 4]),
                SET => registers[to] = number,
                COPY => registers[to] = registers[from],
                AND => registers[to] &= number,
                SHIFT_RIGHT => registers[to] >>= number,
                UNLESS_EQUAL => skipped = leap(registers[to] != number),
                UNLESS_SAME => skipped = leap(registers[to] != registers[from]),
                EXIT => return registers[0] == 1,
                other => panic!("no instruction {other:#x}"),
            }
            at += 1 + skipped;
        }
    }

    #[test]
    fn the_last_rule_that_is_about_a_use_decides() {
        let all = |allow| Rule { allow, kind: None, major: None, minor: None, access: MAKE | READ | WRITE };
        let disk = |minor, access| Rule {
            allow: true,
            kind: Some(BLOCK),
            major: Some(7),
            minor: Some(minor),
            access,
        };
        let ordinary = program(&[all(false), disk(1, READ), disk(2, READ | WRITE)]);
        for (kind, access, minor, allowed) in [
            (BLOCK, READ, 1, true),
            (BLOCK, WRITE, 1, false),
            (BLOCK, READ | WRITE, 1, false),
            (BLOCK, READ | WRITE, 2, true),
            (BLOCK, MAKE, 2, false),
            (BLOCK, READ, 3, false),
            (CHARACTER, READ, 1, false),
        ] {
            assert_eq!(allows(&ordinary, kind, access, 7, minor), allowed, "{kind} {access} {minor}");
        }
        assert!(allows(&program(&[all(true)]), BLOCK, READ | WRITE, 7, 3));
        assert!(!allows(&program(&[]), BLOCK, READ, 7, 3));
    }
}

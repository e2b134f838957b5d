//! The kernel's error numbers as `i32`, the type of [`std::io::Error::raw_os_error`]. Used to classify errors
//! and to order a simulated host to fail.

use linux_raw_sys::errno as raw;

macro_rules! numbers {
    ($($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`")]
        pub const $name: i32 = raw::$name.cast_signed();
    )* };
}

numbers! {
    EACCES EAGAIN EBUSY EEXIST EFBIG EHOSTDOWN EINVAL EIO EISDIR ELOOP ENAMETOOLONG ENODEV ENOENT ENOMEM ENOSPC ENOSYS
    ENOTBLK ENOTCONN ENOTDIR ENOTEMPTY ENXIO EPERM EROFS ESTALE ETIMEDOUT EXDEV EDQUOT
}

/// Error of the simulated kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

impl From<Errno> for std::io::Error {
    fn from(number: Errno) -> Self {
        Self::from_raw_os_error(number.0)
    }
}

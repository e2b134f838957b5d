//! The allocator of this crate's tests, which counts for each thread the bytes that are not given back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The bytes of this thread.
pub(super) fn bytes() -> i64 {
    BYTES.get()
}

fn add(bytes: usize, sign: i64) {
    // A thread that ends has no counter any more.
    let _ = BYTES.try_with(|counted| counted.set(counted.get() + sign * i64::try_from(bytes).unwrap_or(0)));
}

pub(super) struct Counted;

// SAFETY: it only counts what the system's allocator does.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size(), 1);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(layout.size(), -1);
        // SAFETY: as of the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

//! Counts what is allocated and not yet freed in this program, and how often a thread has asked for more.

#![expect(unsafe_code, reason = "an allocator can be wrapped in no other way")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use mimalloc::MiMalloc;

static HELD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// The allocator of `volproof`, counted.
struct Counted;

// SAFETY: every call goes to the other allocator as it came; a number beside it promises nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        ASKED.set(ASKED.get() + 1);
        // SAFETY: what is asked of us is what we ask.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: it came from the other allocator, as everything does that `alloc` gave.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// The allocated bytes.
pub(crate) fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// The number of allocations of this thread.
pub(crate) fn asked() -> u64 {
    ASKED.get()
}

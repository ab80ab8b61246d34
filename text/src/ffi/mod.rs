//! The C interface. Every function catches panics and reports failures through the thread's last
//! error. See `include/espalier_text.h` for the contract.

mod grammar;
mod template;
mod tokenizer;

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::error::TextError;

pub use grammar::*;
pub use template::*;
pub use tokenizer::*;

pub const OK: i32 = 0;
pub const FAILED: i32 = 1;
pub const REFUSED: i32 = 2;
pub const CANCELLED: i32 = 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    pub data: *const u8,
    pub size: usize,
}

#[repr(C)]
pub struct Buffer {
    pub data: *mut u8,
    pub size: usize,
}

#[repr(C)]
pub struct Ids {
    pub data: *mut u32,
    pub size: usize,
}

thread_local! {
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

impl Bytes {
    /// # Safety
    /// `data` must point to `size` readable bytes for as long as the result is used.
    unsafe fn as_slice<'a>(self) -> &'a [u8] {
        slice(self.data, self.size)
    }

    /// # Safety
    /// As for `as_slice`.
    unsafe fn as_str<'a>(self) -> Result<&'a str, TextError> {
        std::str::from_utf8(self.as_slice())
            .map_err(|error| TextError::failed(format!("text is not valid UTF-8: {error}")))
    }
}

/// # Safety
/// `data` must point to `count` readable values, or `count` be 0.
unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

fn give_bytes(bytes: Vec<u8>) -> Buffer {
    let boxed = bytes.into_boxed_slice();
    let size = boxed.len();
    Buffer {
        data: Box::into_raw(boxed).cast(),
        size,
    }
}

fn give_ids(ids: Vec<u32>) -> Ids {
    let boxed = ids.into_boxed_slice();
    let size = boxed.len();
    Ids {
        data: Box::into_raw(boxed).cast(),
        size,
    }
}

fn remember(message: String) {
    LAST_ERROR.with(|last| *last.borrow_mut() = message);
}

/// Runs `work`, turning errors and panics into a status.
fn guarded<T>(work: impl FnOnce() -> Result<T, TextError>) -> Result<T, i32> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let status = match error {
                TextError::Failed(_) => FAILED,
                TextError::Refused(_) => REFUSED,
                TextError::Cancelled => CANCELLED,
            };
            remember(error.to_string());
            Err(status)
        }
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            remember(format!("internal error in the text library: {text}"));
            Err(FAILED)
        }
    }
}

fn status(result: Result<(), i32>) -> i32 {
    match result {
        Ok(()) => OK,
        Err(status) => status,
    }
}

fn new_object<T>(result: Result<T, i32>) -> *mut T {
    match result {
        Ok(object) => Box::into_raw(Box::new(object)),
        Err(_) => std::ptr::null_mut(),
    }
}

/// # Safety
/// `object` must come from `new_object` and not have been freed, or be null.
unsafe fn free_object<T>(object: *mut T) {
    if !object.is_null() {
        drop(Box::from_raw(object));
    }
}

#[no_mangle]
pub extern "C" fn espalier_text_last_error() -> Bytes {
    LAST_ERROR.with(|last| {
        let message = last.borrow();
        Bytes {
            data: message.as_ptr(),
            size: message.len(),
        }
    })
}

/// # Safety
/// `buffer` must come from this library and not have been freed.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_buffer_free(buffer: Buffer) {
    if !buffer.data.is_null() {
        let slice = std::ptr::slice_from_raw_parts_mut(buffer.data, buffer.size);
        drop(Box::from_raw(slice));
    }
}

/// # Safety
/// `ids` must come from this library and not have been freed.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_ids_free(ids: Ids) {
    if !ids.data.is_null() {
        let slice = std::ptr::slice_from_raw_parts_mut(ids.data, ids.size);
        drop(Box::from_raw(slice));
    }
}

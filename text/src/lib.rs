//! Tokenizers, chat templates and grammars for Espalier, behind the C interface of `include/espalier_text.h`.

mod error;
pub mod ffi;
pub mod gguf_vocabulary;
pub mod grammar;
mod pre_tokenizers;
mod spm_merges;
pub mod stream;
pub mod template;
mod template_clock;
mod template_filters;
mod template_json;
mod template_methods;
mod template_source;
pub mod tokenizer;

pub use error::TextError;

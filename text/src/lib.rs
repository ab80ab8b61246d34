//! Tokenizers, chat templates and grammars for Espalier, behind the C interface of `include/espalier_text.h`.

mod base64;
pub mod encode;
mod error;
pub mod ffi;
pub mod grammar;
mod long_words;
pub mod model_files;
mod pre_tokenizers;
mod rank_files;
mod sentencepiece;
mod spm_merges;
pub mod stream;
pub mod template;
mod template_arguments;
pub mod template_clock;
mod template_extent;
mod template_filters;
mod template_format;
mod template_json;
mod template_methods;
mod template_print;
mod template_source;
mod template_tokens;
mod token_bytes;
pub mod tokenizer;
pub mod vocabulary;

pub use error::TextError;

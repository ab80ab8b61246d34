//! Tokenizers and streaming decoders.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use super::{
    free_object, give_bytes, give_ids, guarded, new_object, slice, status, Buffer, Bytes, Ids,
};
use crate::encode::EncodeRequest;
use crate::error::TextError;
use crate::model_files;
use crate::stream::StreamDecoder;
use crate::tokenizer::{SpecialTokens, TextTokenizer};
use crate::vocabulary::Vocabulary;

pub struct TokenizerHandle(Arc<TextTokenizer>);

impl TokenizerHandle {
    pub(super) fn share(&self) -> Arc<TextTokenizer> {
        Arc::clone(&self.0)
    }
}

#[repr(C)]
pub struct RawGgufVocabulary {
    model: Bytes,
    pre: Bytes,
    tokens: *const Bytes,
    token_count: usize,
    types: *const i32,
    type_count: usize,
    scores: *const f32,
    score_count: usize,
    merges: *const Bytes,
    merge_count: usize,
    precompiled_charsmap: Bytes,
    bos: i64,
    eos: i64,
    unknown: i64,
    separator: i64,
    add_bos: i32,
    add_eos: i32,
    add_space_prefix: i32,
    remove_extra_whitespaces: i32,
}

/// # Safety
/// `json` must be readable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_tokenizer_from_json(json: Bytes) -> *mut TokenizerHandle {
    new_object(guarded(|| {
        let tokenizer = TextTokenizer::from_json(json.as_slice())?;
        Ok(TokenizerHandle(Arc::new(tokenizer)))
    }))
}

/// # Safety
/// `name`, `content` and `config` must be readable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_tokenizer_from_model_file(
    name: Bytes,
    content: Bytes,
    config: Bytes,
) -> *mut TokenizerHandle {
    new_object(guarded(|| {
        let tokenizer = model_files::read(name.as_str()?, content.as_slice(), config.as_slice())?;
        Ok(TokenizerHandle(Arc::new(tokenizer)))
    }))
}

/// # Safety
/// `vocabulary` and all it points to must be readable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_tokenizer_from_gguf(
    vocabulary: *const RawGgufVocabulary,
) -> *mut TokenizerHandle {
    new_object(guarded(|| {
        let tokenizer = read_vocabulary(&*vocabulary)?.build()?;
        Ok(TokenizerHandle(Arc::new(tokenizer)))
    }))
}

unsafe fn read_vocabulary(raw: &RawGgufVocabulary) -> Result<Vocabulary, TextError> {
    let mut merges = Vec::with_capacity(raw.merge_count);
    for merge in slice(raw.merges, raw.merge_count) {
        merges.push(split_merge(merge.as_str()?)?);
    }
    Ok(Vocabulary {
        model: raw.model.as_str()?.to_owned(),
        pre: raw.pre.as_str()?.to_owned(),
        tokens: strings(raw.tokens, raw.token_count)?,
        types: slice(raw.types, raw.type_count).to_vec(),
        scores: slice(raw.scores, raw.score_count).to_vec(),
        merges,
        precompiled_charsmap: raw.precompiled_charsmap.as_slice().to_vec(),
        bos: u32::try_from(raw.bos).ok(),
        eos: u32::try_from(raw.eos).ok(),
        unknown: u32::try_from(raw.unknown).ok(),
        separator: u32::try_from(raw.separator).ok(),
        add_bos: flag(raw.add_bos),
        add_eos: flag(raw.add_eos),
        add_space_prefix: flag(raw.add_space_prefix),
        remove_extra_whitespaces: flag(raw.remove_extra_whitespaces),
        ..Default::default()
    })
}

/// At the first space that is not the left part itself.
fn split_merge(merge: &str) -> Result<(String, String), TextError> {
    let first = merge.chars().next().map_or(0, char::len_utf8);
    match merge[first..].find(' ') {
        Some(length) => {
            let (left, right) = merge.split_at(first + length);
            Ok((left.to_owned(), right[1..].to_owned()))
        }
        None => Err(TextError::failed(format!(
            "tokenizer.ggml.merges has {merge:?}"
        ))),
    }
}

unsafe fn strings(data: *const Bytes, count: usize) -> Result<Vec<String>, TextError> {
    let mut texts = Vec::with_capacity(count);
    for bytes in slice(data, count) {
        texts.push(bytes.as_str()?.to_owned());
    }
    Ok(texts)
}

fn flag(value: i32) -> Option<bool> {
    (value >= 0).then_some(value != 0)
}

/// # Safety
/// `tokenizer` must come from this library and not have been freed.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_tokenizer_free(tokenizer: *mut TokenizerHandle) {
    free_object(tokenizer);
}

#[repr(C)]
pub struct Span {
    begin: usize,
    end: usize,
}

#[repr(C)]
pub struct RawEncodeRequest {
    special: i32,
    literal: *const Span,
    literal_count: usize,
    cancelled: Option<unsafe extern "C" fn(*const c_void) -> i32>,
    context: *const c_void,
}

/// # Safety
/// `tokenizer` must be alive, `text` and all that `request` points to readable, `ids` writable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_encode(
    tokenizer: *const TokenizerHandle,
    text: Bytes,
    request: *const RawEncodeRequest,
    ids: *mut Ids,
) -> i32 {
    status(guarded(|| {
        let request = &*request;
        let special = match request.special {
            0 => SpecialTokens::Recognise,
            1 => SpecialTokens::Add,
            2 => SpecialTokens::Literal,
            _ => return Err(TextError::failed("unknown treatment of special tokens")),
        };
        let text = String::from_utf8_lossy(text.as_slice());
        let literal: Vec<Range<usize>> = slice(request.literal, request.literal_count)
            .iter()
            .map(|span| span.begin..span.end)
            .collect();
        let cancelled = || match request.cancelled {
            Some(cancelled) => cancelled(request.context) != 0,
            None => false,
        };
        let encoded = (*tokenizer).0.encode_as(
            &text,
            &EncodeRequest {
                special,
                literal: &literal,
                cancelled: &cancelled,
            },
        )?;
        ids.write(give_ids(encoded));
        Ok(())
    }))
}

/// # Safety
/// `tokenizer` must be alive, `ids` point to `count` ids, `text` be writable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_decode(
    tokenizer: *const TokenizerHandle,
    ids: *const u32,
    count: usize,
    skip_special: i32,
    text: *mut Buffer,
) -> i32 {
    status(guarded(|| {
        let decoded = (*tokenizer)
            .0
            .decode(slice(ids, count), skip_special != 0)?;
        text.write(give_bytes(decoded.into_bytes()));
        Ok(())
    }))
}

/// # Safety
/// `tokenizer` must be alive, `bytes` writable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_token_bytes(
    tokenizer: *const TokenizerHandle,
    id: u32,
    bytes: *mut Buffer,
) -> i32 {
    status(guarded(|| {
        bytes.write(give_bytes((*tokenizer).0.token_bytes(id)));
        Ok(())
    }))
}

/// # Safety
/// `tokenizer` must be alive, `name` writable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_token_name(
    tokenizer: *const TokenizerHandle,
    id: u32,
    name: *mut Buffer,
) -> i32 {
    status(guarded(|| {
        let found = (*tokenizer).0.token_name(id).unwrap_or_default();
        name.write(give_bytes(found.into_bytes()));
        Ok(())
    }))
}

/// # Safety
/// `tokenizer` must be alive, `name` readable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_token_id(
    tokenizer: *const TokenizerHandle,
    name: Bytes,
) -> i64 {
    guarded(|| Ok((*tokenizer).0.token_id(name.as_str()?)))
        .ok()
        .flatten()
        .map_or(-1, i64::from)
}

/// # Safety
/// `tokenizer` must be alive.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_is_special(
    tokenizer: *const TokenizerHandle,
    id: u32,
) -> i32 {
    i32::from((*tokenizer).0.is_special(id))
}

/// # Safety
/// `tokenizer` must be alive.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_vocabulary_size(tokenizer: *const TokenizerHandle) -> u32 {
    (*tokenizer).0.size()
}

/// # Safety
/// `tokenizer` must be alive, `json` writable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_tokenizer_json(
    tokenizer: *const TokenizerHandle,
    json: *mut Buffer,
) -> i32 {
    status(guarded(|| {
        json.write(give_bytes((*tokenizer).0.to_json()?.into_bytes()));
        Ok(())
    }))
}

/// # Safety
/// `tokenizer` must be alive.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_stream_new(
    tokenizer: *const TokenizerHandle,
    skip_special: i32,
) -> *mut StreamDecoder {
    new_object(guarded(|| {
        let tokenizer = Arc::clone(&(*tokenizer).0);
        Ok(StreamDecoder::new(tokenizer, skip_special != 0))
    }))
}

/// # Safety
/// `stream` must come from this library and not have been freed.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_stream_free(stream: *mut StreamDecoder) {
    free_object(stream);
}

/// # Safety
/// `stream` must be alive and used by no other thread, `text` writable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_stream_push(
    stream: *mut StreamDecoder,
    id: u32,
    text: *mut Buffer,
) -> i32 {
    status(guarded(|| {
        let piece = (*stream).push(id)?;
        text.write(give_bytes(piece.into_bytes()));
        Ok(())
    }))
}

/// # Safety
/// As for `espalier_text_stream_push`.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_stream_finish(
    stream: *mut StreamDecoder,
    text: *mut Buffer,
) -> i32 {
    status(guarded(|| {
        let piece = (*stream).finish()?;
        text.write(give_bytes(piece.into_bytes()));
        Ok(())
    }))
}

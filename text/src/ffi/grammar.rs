//! Grammars.

use std::sync::Arc;

use super::tokenizer::TokenizerHandle;
use super::{free_object, give_bytes, guarded, new_object, slice, status, Buffer, Bytes};
use crate::error::TextError;
use crate::grammar::{Constraint, ConstraintMatcher, GrammarVocabulary, Reasoning, Source};

pub struct VocabularyHandle(Arc<GrammarVocabulary>);

#[repr(C)]
pub struct RawGrammar {
    source: i32,
    text: Bytes,
    follows_reasoning: i32,
    reasoning_open: Bytes,
    reasoning_close: Bytes,
    text_close: Bytes,
}

/// # Safety
/// `tokenizer` must be alive, `end_tokens` point to `end_token_count` ids.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_grammar_vocabulary_new(
    tokenizer: *const TokenizerHandle,
    width: u32,
    end_tokens: *const u32,
    end_token_count: usize,
) -> *mut VocabularyHandle {
    new_object(guarded(|| {
        let tokenizer = (*tokenizer).share();
        let end_tokens = slice(end_tokens, end_token_count);
        let vocabulary = GrammarVocabulary::new(tokenizer, width, end_tokens)?;
        Ok(VocabularyHandle(Arc::new(vocabulary)))
    }))
}

/// # Safety
/// `vocabulary` must come from this library and not have been freed.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_grammar_vocabulary_free(vocabulary: *mut VocabularyHandle) {
    free_object(vocabulary);
}

/// # Safety
/// `vocabulary` must be alive, `text` readable, `reference` writable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_grammar_reference(
    vocabulary: *const VocabularyHandle,
    text: Bytes,
    reference: *mut Buffer,
) -> i32 {
    status(guarded(|| {
        let found = (*vocabulary).0.reference(text.as_str()?);
        reference.write(give_bytes(found.into_bytes()));
        Ok(())
    }))
}

/// # Safety
/// `vocabulary` must be alive, `grammar` and all it points to readable, `constraint` writable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_constraint_compile(
    vocabulary: *const VocabularyHandle,
    grammar: *const RawGrammar,
    constraint: *mut *mut Constraint,
) -> i32 {
    status(guarded(|| {
        let raw = &*grammar;
        let source = match raw.source {
            0 => Source::JsonSchema,
            1 => Source::Regex,
            2 => Source::Lark,
            3 => Source::Gbnf,
            4 => Source::Choice,
            _ => return Err(TextError::failed("unknown kind of grammar")),
        };
        let reasoning = if raw.follows_reasoning != 0 {
            Some(Reasoning {
                open: raw.reasoning_open.as_str()?.to_owned(),
                close: raw.reasoning_close.as_str()?.to_owned(),
            })
        } else {
            None
        };
        let vocabulary = Arc::clone(&(*vocabulary).0);
        let compiled = Constraint::compile(
            vocabulary,
            source,
            raw.text.as_str()?,
            reasoning.as_ref(),
            raw.text_close.as_str()?,
        )?;
        constraint.write(Box::into_raw(Box::new(compiled)));
        Ok(())
    }))
}

/// # Safety
/// `constraint` must come from this library and not have been freed.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_constraint_free(constraint: *mut Constraint) {
    free_object(constraint);
}

/// # Safety
/// `constraint` must be alive.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_matcher_new(
    constraint: *const Constraint,
) -> *mut ConstraintMatcher {
    new_object(guarded(|| Ok((*constraint).matcher())))
}

/// # Safety
/// `matcher` must come from this library and not have been freed.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_matcher_free(matcher: *mut ConstraintMatcher) {
    free_object(matcher);
}

/// # Safety
/// `matcher` must be alive and used by no other thread.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_matcher_limit(
    matcher: *mut ConstraintMatcher,
    tokens: usize,
) -> i32 {
    status(guarded(|| {
        (*matcher).limit(tokens);
        Ok(())
    }))
}

/// # Safety
/// `matcher` must be alive and used by no other thread, `words` point to `word_count` writable words.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_matcher_mask(
    matcher: *mut ConstraintMatcher,
    words: *mut u32,
    word_count: usize,
) -> i32 {
    status(guarded(|| {
        (*matcher).mask(std::slice::from_raw_parts_mut(words, word_count))
    }))
}

/// # Safety
/// `matcher` must be alive and used by no other thread.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_matcher_commit(
    matcher: *mut ConstraintMatcher,
    id: u32,
) -> i32 {
    status(guarded(|| (*matcher).commit(id)))
}

/// # Safety
/// As for `espalier_text_matcher_commit`.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_matcher_rollback(
    matcher: *mut ConstraintMatcher,
    count: usize,
) -> i32 {
    status(guarded(|| (*matcher).rollback(count)))
}

/// # Safety
/// `matcher` must be alive and used by no other thread.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_matcher_stopped(matcher: *const ConstraintMatcher) -> i32 {
    guarded(|| Ok((*matcher).stopped())).map_or(1, i32::from)
}

/// # Safety
/// As for `espalier_text_matcher_commit`; `accepting` must be writable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_matcher_accepting(
    matcher: *mut ConstraintMatcher,
    accepting: *mut i32,
) -> i32 {
    status(guarded(|| {
        accepting.write(i32::from((*matcher).accepting()?));
        Ok(())
    }))
}

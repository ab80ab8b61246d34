//! Chat templates.

use serde_json::{Map, Value as Json};

use super::{free_object, give_bytes, guarded, new_object, status, Buffer, Bytes};
use crate::error::TextError;
use crate::template::{ChatTemplate, Limits, RenderInput};
use crate::template_clock::Moment;

#[repr(C)]
pub struct RawRenderInput {
    messages: Bytes,
    tools: Bytes,
    documents: Bytes,
    kwargs: Bytes,
    special_tokens: Bytes,
    add_generation_prompt: i32,
    continue_final_message: i32,
    local_seconds: i64,
}

/// # Safety
/// `source` must be readable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_template_compile(source: Bytes) -> *mut ChatTemplate {
    new_object(guarded(|| {
        ChatTemplate::compile(source.as_str()?, Limits::default())
    }))
}

/// # Safety
/// `template` must come from this library and not have been freed.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_template_free(template: *mut ChatTemplate) {
    free_object(template);
}

/// # Safety
/// `template` must be alive, `input` and all it points to readable, `text` writable.
#[no_mangle]
pub unsafe extern "C" fn espalier_text_template_render(
    template: *const ChatTemplate,
    input: *const RawRenderInput,
    text: *mut Buffer,
) -> i32 {
    status(guarded(|| {
        let rendered = (*template).render(read_input(&*input)?)?;
        text.write(give_bytes(rendered.into_bytes()));
        Ok(())
    }))
}

unsafe fn read_input(raw: &RawRenderInput) -> Result<RenderInput, TextError> {
    Ok(RenderInput {
        messages: json("messages", raw.messages)?,
        tools: json("tools", raw.tools)?,
        documents: json("documents", raw.documents)?,
        kwargs: object("template variables", raw.kwargs)?,
        special_tokens: object("special tokens", raw.special_tokens)?,
        add_generation_prompt: raw.add_generation_prompt != 0,
        continue_final_message: raw.continue_final_message != 0,
        now: Moment::from_local_seconds(raw.local_seconds),
    })
}

unsafe fn json(name: &str, text: Bytes) -> Result<Json, TextError> {
    if text.size == 0 {
        return Ok(Json::Null);
    }
    serde_json::from_slice(text.as_slice())
        .map_err(|error| TextError::failed(format!("{name}: {error}")))
}

unsafe fn object(name: &str, text: Bytes) -> Result<Map<String, Json>, TextError> {
    match json(name, text)? {
        Json::Null => Ok(Map::new()),
        Json::Object(object) => Ok(object),
        _ => Err(TextError::failed(format!("{name} must be a JSON object"))),
    }
}

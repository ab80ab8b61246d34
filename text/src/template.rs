//! Chat templates with the environment that transformers gives them.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde_json::{Map, Value as Json};

use crate::error::TextError;
use crate::template_clock::Moment;
use crate::template_filters;
use crate::template_methods;
use crate::template_print;
use crate::template_source;

const NAME: &str = "chat_template";
/// Put behind the last message's text to find its end in the output.
const CONTINUE_MARKER: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Bounds for templates, which are foreign code.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Instructions, roughly.
    pub fuel: u64,
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 10_000_000,
            output_bytes: 64 << 20,
        }
    }
}

/// What a template is given.
pub struct RenderInput {
    pub messages: Json,
    /// `Null` when not given, which is what the template sees.
    pub tools: Json,
    pub documents: Json,
    pub special_tokens: Map<String, Json>,
    /// Further variables.
    pub kwargs: Map<String, Json>,
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
    pub now: Moment,
}

/// A compiled template. Immutable and thread-safe.
pub struct ChatTemplate {
    environment: Environment<'static>,
    limits: Limits,
}

impl ChatTemplate {
    pub fn compile(source: &str, limits: Limits) -> Result<Self, TextError> {
        let source = template_source::prepare(source)?;
        on_deep_stack(|| Self::compile_prepared(source, limits))
    }

    fn compile_prepared(source: String, limits: Limits) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(describe)?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(limits.fuel));
        environment.set_unknown_method_callback(template_methods::call);
        environment.set_formatter(template_print::write);
        template_filters::install(&mut environment);
        environment
            .add_template_owned(NAME, source)
            .map_err(describe)?;
        Ok(Self {
            environment,
            limits,
        })
    }

    pub fn render(&self, mut input: RenderInput) -> Result<String, TextError> {
        normalize_messages(&mut input.messages)?;
        if input.continue_final_message {
            if input.add_generation_prompt {
                return Err(TextError::failed(
                    "a prompt can either continue the final message or begin a new one",
                ));
            }
            mark_final_message(&mut input.messages)?;
        }
        let text = on_deep_stack(|| self.render_context(context(&input)))?;
        if input.continue_final_message {
            cut_at_marker(text)
        } else {
            Ok(text)
        }
    }

    fn render_context(&self, context: Value) -> Result<String, TextError> {
        let template = self.environment.get_template(NAME).map_err(describe)?;
        let mut output = BoundedOutput {
            bytes: Vec::new(),
            limit: self.limits.output_bytes,
        };
        template
            .render_captured_to(context, &mut output)
            .map_err(describe)?;
        String::from_utf8(output.bytes).map_err(|error| TextError::failed(error.to_string()))
    }
}

/// Runs `work` on a thread with room for expressions and values nested as deeply as the limits
/// allow: the engine recurses over them, also when it frees them.
fn on_deep_stack<T: Send>(
    work: impl FnOnce() -> Result<T, TextError> + Send,
) -> Result<T, TextError> {
    const STACK_BYTES: usize = 512 << 20; // address space; pages are taken as they are touched
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|error| TextError::failed(format!("no thread for the template: {error}")))?;
        match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

struct BoundedOutput {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            return Err(io::Error::other(format!(
                "the template wrote more than {} bytes",
                self.limit
            )));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn context(input: &RenderInput) -> Value {
    let mut variables: Vec<(String, Value)> = Vec::new();
    let mut set = |name: &str, value: Value| variables.push((name.to_owned(), value));
    for (name, token) in &input.special_tokens {
        set(name, Value::from(Serde(token)));
    }
    set(
        template_filters::CLOCK,
        template_filters::clock_function(input.now),
    );
    set("messages", Value::from(Serde(&input.messages)));
    set("tools", Value::from(Serde(&input.tools)));
    set("documents", Value::from(Serde(&input.documents)));
    set(
        "add_generation_prompt",
        Value::from(input.add_generation_prompt),
    );
    for (name, value) in &input.kwargs {
        set(name, Value::from(Serde(value)));
    }
    Value::from_pairs(variables)
}

/// The names of a message's reasoning, the preferred one first.
const REASONING_KEYS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Drops keys without a value and gives reasoning as `reasoning_content` and as `thinking`.
fn normalize_messages(messages: &mut Json) -> Result<(), TextError> {
    let Json::Array(messages) = messages else {
        return Err(TextError::failed("messages must be an array"));
    };
    for message in messages {
        let Json::Object(message) = message else {
            return Err(TextError::failed("each message must be an object"));
        };
        message.retain(|_, value| !value.is_null());
        let reasoning = REASONING_KEYS
            .iter()
            .find_map(|key| message.get(*key).cloned());
        if let Some(reasoning) = reasoning {
            if !message.contains_key("thinking") {
                message.insert("thinking".to_owned(), reasoning.clone());
            }
            message.insert("reasoning_content".to_owned(), reasoning);
        }
    }
    Ok(())
}

fn mark_final_message(messages: &mut Json) -> Result<(), TextError> {
    let text = messages
        .as_array_mut()
        .and_then(|messages| messages.last_mut())
        .and_then(|message| message.get_mut("content"))
        .and_then(final_text)
        .ok_or_else(|| TextError::failed("the final message has no text to continue"))?;
    text.push_str(CONTINUE_MARKER);
    Ok(())
}

fn final_text(content: &mut Json) -> Option<&mut String> {
    match content {
        Json::String(text) => Some(text),
        Json::Array(parts) => {
            let last = parts
                .iter_mut()
                .rev()
                .find_map(|part| part.get_mut("text"))?;
            match last {
                Json::String(text) => Some(text),
                _ => None,
            }
        }
        _ => None,
    }
}

fn cut_at_marker(mut text: String) -> Result<String, TextError> {
    let position = text
        .rfind(CONTINUE_MARKER.trim_end())
        .ok_or_else(|| TextError::failed("the template drops the final message's text"))?;
    let kept = text[position..].starts_with(CONTINUE_MARKER);
    text.truncate(position);
    if !kept {
        // The template trims the message, so what precedes the marker is trimmed too.
        text.truncate(text.trim_end().len());
    }
    Ok(text)
}

fn describe(error: minijinja::Error) -> TextError {
    if let Some(message) = template_filters::refusal(&error) {
        return TextError::Refused(message);
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    TextError::Failed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> Result<String, TextError> {
        let limits = Limits {
            fuel: 100_000,
            output_bytes: 1000,
        };
        ChatTemplate::compile(source, limits)?.render(RenderInput {
            messages: serde_json::json!([{"role": "user", "content": "hi", "name": null}]),
            tools: Json::Null,
            documents: Json::Null,
            special_tokens: Map::new(),
            kwargs: Map::new(),
            add_generation_prompt: true,
            continue_final_message: false,
            now: Moment::from_local_seconds(0),
        })
    }

    #[test]
    fn a_refusal_keeps_its_message() {
        let error = render("{{ raise_exception('no ' ~ messages[0].role) }}");
        assert!(matches!(error, Err(TextError::Refused(message)) if message == "no user"));
    }

    #[test]
    fn endless_templates_stop() {
        let loops = "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}";
        assert!(matches!(render(loops), Err(TextError::Failed(_))));
        let writes = "{% for i in range(999) %}0123456789{% endfor %}";
        let message = render(writes).err().map(|error| error.to_string());
        assert!(message.is_some_and(|text| text.contains("1000 bytes")));
    }

    #[test]
    fn values_with_too_long_texts_are_refused() {
        for print in ["v.x", "v.x|tojson", "v.x|string", "[v.x]|join"] {
            let doubling = "{% set v.x = [v.x, v.x] %}".repeat(10);
            let source =
                format!("{{% set v = namespace(x='y' * 100000) %}}{doubling}{{{{ {print} }}}}");
            let message = render(&source).err().map(|error| error.to_string());
            assert!(message.is_some_and(|text| text.contains("too long")));
        }
    }

    #[test]
    fn values_with_endless_items_are_refused() {
        let doubled = [
            "{% set v.x = v.x + v.x %}".repeat(60),
            "{% set v.x = [v.x, v.x] %}".repeat(60),
            "{% set v.x = {'a': v.x, 'b': v.x} %}".repeat(60),
            "{% for a in [[v.x, v.x]] %}{% set v.x = a %}{% endfor %}".repeat(60),
            "{% macro m(a, n) %}{% if n %}{{ m([a, a], n - 1) }}{% endif %}{{ a == [a] }}\
             {% endmacro %}{{ m(1, 60) }}"
                .to_owned(),
        ];
        for source in doubled {
            let source = format!(
                "{{% set v = namespace(x=[1]) %}}{source}{{{{ v.x == [v.x] or v.x|length }}}}"
            );
            let message = render(&source).err().map(|error| error.to_string());
            assert!(message.is_some_and(|text| text.contains("1000000 items")));
        }
    }

    #[test]
    fn null_keys_are_dropped() {
        let text = render("{{ 'name' in messages[0] }} {{ strftime_now('%Y') }}");
        assert_eq!(text.unwrap_or_default(), "False 1970");
    }
}

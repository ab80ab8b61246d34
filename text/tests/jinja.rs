//! Templates against what Jinja2 renders: data/jinja_snippets.json, made by reference/make_jinja_table.py.

use espalier_text::template::{ChatTemplate, Limits, RenderInput};
use espalier_text::template_clock::Moment;
use serde_json::{Map, Value};

/// 2026-03-05 14:07:09.
const NOW: i64 = 1_772_719_629;

fn render(template: &str, variables: &Map<String, Value>) -> Result<String, String> {
    let mut kwargs = variables.clone();
    let mut take = |name: &str| kwargs.remove(name).unwrap_or_default();
    let messages = take("messages");
    let (tools, documents) = (take("tools"), take("documents"));
    ChatTemplate::compile(template, Limits::default())
        .and_then(|compiled| {
            compiled.render(RenderInput {
                messages,
                tools,
                documents,
                special_tokens: Map::new(),
                kwargs,
                add_generation_prompt: true,
                continue_final_message: false,
                now: Moment::from_local_seconds(NOW),
            })
        })
        .map_err(|error| error.to_string())
}

#[test]
fn templates_render_as_jinja2_does() {
    let table: Value = serde_json::from_str(include_str!("data/jinja_snippets.json")).unwrap();
    let variables = table["variables"].as_object().unwrap();
    let mut wrong = Vec::new();
    for case in table["cases"].as_array().unwrap() {
        let template = case["template"].as_str().unwrap();
        let result = render(template, variables);
        let equal = match case["expected"].as_str() {
            Some(expected) => result.as_deref() == Ok(expected),
            None => result.is_err(),
        };
        if equal == case["differs"].as_bool().unwrap_or(false) {
            wrong.push(format!("{template}\n  {result:?}\n  {case}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

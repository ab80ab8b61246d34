//! What is rewritten in a template's source because the engine has no hook for it.

/// `{% generation %}` marks what the assistant said, for training; here it has no effect. Sums with
/// a `safe` operand become calls of `SAFE_SUM`, since in Jinja they escape their other operands.
pub fn prepare(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = ["{%", "{{", "{#"]
        .iter()
        .filter_map(|open| rest.find(open))
        .min()
    {
        let (before, tag) = rest.split_at(start);
        text.push_str(before);
        let end = match &tag[..2] {
            "{%" => find_unquoted(&tag[2..], "%}"),
            "{{" => find_unquoted(&tag[2..], "}}"),
            _ => tag[2..].find("#}"),
        };
        let Some(length) = end.map(|index| index + 4) else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(length);
        match &tag[..2] {
            "{%" => push_block(&mut text, tag),
            "{{" => push_expression(&mut text, tag),
            _ => text.push_str(tag),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

/// The function that adds as Python does when one of the texts is markup.
pub const SAFE_SUM: &str = "__safe_sum";

fn push_block(text: &mut String, tag: &str) {
    let content = &tag[2..tag.len() - 2];
    match content.trim_matches(|c: char| c.is_whitespace() || "-+".contains(c)) {
        "generation" => text.push_str(&tag.replace("generation", "if true")),
        "endgeneration" => text.push_str(&tag.replace("endgeneration", "endif")),
        _ => text.push_str(tag),
    }
}

fn push_expression(text: &mut String, tag: &str) {
    let content = &tag[2..tag.len() - 2];
    let without_start = content.strip_prefix(['-', '+']).unwrap_or(content);
    let expression = without_start
        .strip_suffix(['-', '+'])
        .unwrap_or(without_start);
    match safe_operands(expression) {
        Some(operands) => {
            let start = &tag[..2 + content.len() - without_start.len()];
            let end = &tag[tag.len() - 2 - (without_start.len() - expression.len())..];
            let list = operands.join(", ");
            text.push_str(&format!("{start} {SAFE_SUM}({list}) {end}"));
        }
        None => text.push_str(tag),
    }
}

/// The operands of a plain sum in which one is marked `safe`.
fn safe_operands(expression: &str) -> Option<Vec<&str>> {
    let mut operands = Vec::new();
    let mut start = 0;
    let mut any_safe = false;
    let mut words = String::new();
    for (index, character, depth) in unquoted(expression) {
        if depth > 0 {
            continue;
        }
        match character {
            '+' => {
                operands.push(&expression[start..index]);
                start = index + 1;
            }
            '~' | '-' | '<' | '>' | '=' | '!' | '?' | ',' => return None,
            _ => {}
        }
        words.push(
            if character.is_alphanumeric() || character == '_' || character == '|' {
                character
            } else {
                ' '
            },
        );
    }
    operands.push(&expression[start..]);
    let spaced = words.replace('|', " | ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    for (index, word) in words.iter().enumerate() {
        match *word {
            "if" | "else" | "or" | "and" | "not" | "in" | "is" => return None,
            "safe" => any_safe |= index > 0 && words[index - 1] == "|",
            _ => {}
        }
    }
    (any_safe && operands.len() > 1).then_some(operands)
}

/// Where `wanted` is outside of quotes.
fn find_unquoted(text: &str, wanted: &str) -> Option<usize> {
    unquoted(text)
        .map(|(index, _, _)| index)
        .find(|index| text[*index..].starts_with(wanted))
}

/// The characters outside of string literals, each with its index and the number of open brackets.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char, usize)> + '_ {
    let mut quote = None;
    let mut escaped = false;
    let mut depth: usize = 0;
    text.char_indices().filter_map(move |(index, character)| {
        if let Some(open) = quote {
            if escaped {
                escaped = false;
            } else if character == '\\' {
                escaped = true;
            } else if character == open {
                quote = None;
            }
            return None;
        }
        match character {
            '\'' | '"' => {
                quote = Some(character);
                return None;
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let at = depth;
        if matches!(character, '(' | '[' | '{') {
            depth += 1;
        }
        Some((index, character, at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites_only_what_it_must() {
        let cases = [
            (
                "{%- generation -%}x{% endgeneration %}",
                "{%- if true -%}x{% endif %}",
            ),
            ("{{ a + b }} {% if a %}", "{{ a + b }} {% if a %}"),
            (
                "{{- 'x + y'|safe + b|f(1 + 2) }}",
                "{{- __safe_sum( 'x + y'|safe ,  b|f(1 + 2) ) }}",
            ),
            (
                "{{ a|safe + b if c else d }}",
                "{{ a|safe + b if c else d }}",
            ),
            ("{{ '}}' + safe }}{{", "{{ '}}' + safe }}{{"),
            ("{# '{% #}{% generation %}", "{# '{% #}{% if true %}"),
        ];
        for (source, expected) in cases {
            assert_eq!(prepare(source), expected);
        }
    }
}

//! Filters, tests and functions of transformers' template environment that minijinja lacks or does
//! differently.

use std::borrow::Cow;

use minijinja::filters;
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use crate::error::TextError;
use crate::template_clock::Moment;
use crate::template_json::{dumps, JsonStyle};
use crate::template_source::SAFE_SUM;

pub fn install(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", tojson);
    environment.add_filter("int", to_int);
    environment.add_filter("indent", indent);
    for name in ["escape", "e", "forceescape"] {
        environment.add_filter(name, escape);
    }
    install_generators(environment);
    environment.add_function(SAFE_SUM, safe_sum);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_function("raise_exception", raise_exception);
}

/// Python's versions of these return generators: always true, used up by one loop, without a length.
fn install_generators(environment: &mut Environment<'static>) {
    type Arguments = Rest<ValueOrKwargs>;
    type Name<'a> = Cow<'a, str>;
    environment.add_filter("map", |state: &mut State, value: Value, rest: Arguments| {
        filters::map(state, value, rest).map(generator)
    });
    environment.add_filter(
        "select",
        |state: &mut State, value: Value, test: Option<Name>, rest: Arguments| {
            filters::select(state, value, test, rest).map(generator)
        },
    );
    environment.add_filter(
        "reject",
        |state: &mut State, value: Value, test: Option<Name>, rest: Arguments| {
            filters::reject(state, value, test, rest).map(generator)
        },
    );
    environment.add_filter(
        "selectattr",
        |state: &mut State, value: Value, key: Name, test: Option<Name>, rest: Arguments| {
            filters::selectattr(state, value, key, test, rest).map(generator)
        },
    );
    environment.add_filter(
        "rejectattr",
        |state: &mut State, value: Value, key: Name, test: Option<Name>, rest: Arguments| {
            filters::rejectattr(state, value, key, test, rest).map(generator)
        },
    );
}

fn generator(values: Vec<Value>) -> Value {
    Value::make_one_shot_iterator(values.into_iter())
}

/// The name under which a render's moment is found.
pub const CLOCK: &str = "strftime_now";

pub fn clock_function(moment: Moment) -> Value {
    Value::from_function(move |pattern: &str| moment.format(pattern))
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let refusal = TextError::Refused(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "the template refuses").with_source(refusal))
}

/// The message of a `raise_exception` anywhere below `error`.
pub fn refusal(error: &Error) -> Option<String> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(TextError::Refused(message)) = cause.downcast_ref::<TextError>() {
            return Some(message.clone());
        }
        source = cause.source();
    }
    None
}

/// `tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn tojson(value: &Value, ascii: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let mut style = JsonStyle::default();
    let ascii = options.get::<Option<Value>>("ensure_ascii")?.or(ascii);
    style.ensure_ascii = ascii.is_some_and(|value| value.is_true());
    if let Some(indent) = options.get::<Option<Value>>("indent")? {
        if !indent.is_none() {
            style.indent = Some(match indent.as_str() {
                Some(text) => text.to_owned(),
                None => " ".repeat(usize::try_from(indent)?.min(1024)),
            });
            style.item_separator = ",".to_owned();
        }
    }
    if let Some(separators) = options.get::<Option<Value>>("separators")? {
        if !separators.is_none() {
            style.item_separator = separators.get_item_by_index(0)?.to_string();
            style.key_separator = separators.get_item_by_index(1)?.to_string();
        }
    }
    if let Some(sort_keys) = options.get::<Option<Value>>("sort_keys")? {
        style.sort_keys = sort_keys.is_true();
    }
    options.assert_all_used()?;
    dumps(value, &style).map(Value::from)
}

/// Jinja's `indent`: the first line and blank ones only when asked for; a newline at the end stays.
fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let width = options.get::<Option<Value>>("width")?.or(width);
    let first = options.get::<Option<bool>>("first")?.or(first);
    let blank = options.get::<Option<bool>>("blank")?.or(blank);
    options.assert_all_used()?;
    let margin = match width {
        None => " ".repeat(4),
        Some(width) => match width.as_str() {
            Some(margin) => margin.to_owned(),
            None => " ".repeat(usize::try_from(width)?.min(1024)),
        },
    };
    let mut indented = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            indented.push('\n');
        }
        let wanted = if index == 0 {
            first.unwrap_or(false)
        } else {
            blank.unwrap_or(false) || !line.is_empty()
        };
        if wanted {
            indented.push_str(&margin);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// Markup, escaped as Python's markupsafe does it.
fn escape(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    let plain = value.to_string();
    let mut text = String::with_capacity(plain.len());
    for character in plain.chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '\'' => text.push_str("&#39;"),
            '"' => text.push_str("&#34;"),
            other => text.push(other),
        }
    }
    Value::from_safe_string(text)
}

/// A sum of texts of which some are markup: the others are escaped.
fn safe_sum(operands: Rest<Value>) -> Result<Value, Error> {
    let mut operands = operands.iter();
    let mut sum = operands.next().cloned().unwrap_or_default();
    for operand in operands {
        let (Some(_), Some(_)) = (sum.as_str(), operand.as_str()) else {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("cannot add {} and {}", sum.kind(), operand.kind()),
            ));
        };
        sum = if sum.is_safe() || operand.is_safe() {
            Value::from_safe_string(format!("{}{}", escape(&sum), escape(operand)))
        } else {
            Value::from(format!("{sum}{operand}"))
        };
    }
    Ok(sum)
}

/// Python's `int`, with the default for what is no number.
fn to_int(value: &Value, default: Option<i64>, options: Kwargs) -> Result<i64, Error> {
    let default = options
        .get::<Option<i64>>("default")?
        .or(default)
        .unwrap_or(0);
    let base = options.get::<Option<u32>>("base")?.unwrap_or(10);
    options.assert_all_used()?;
    if let Some(text) = value.as_str() {
        let digits = text.trim().replace('_', "");
        if let Ok(number) = i64::from_str_radix(&digits, base.clamp(2, 36)) {
            return Ok(number);
        }
        return Ok(digits
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())
            .map_or(default, |number| number as i64));
    }
    if value.kind() == ValueKind::Bool {
        return Ok(i64::from(value.is_true()));
    }
    if let Some(number) = value.as_i64() {
        return Ok(number);
    }
    Ok(f64::try_from(value.clone()).map_or(default, |number| number as i64))
}

/// Whether Python's `iter` accepts it.
fn is_iterable(value: &Value) -> bool {
    match value.kind() {
        ValueKind::None => false,
        ValueKind::Undefined => true,
        _ => value.try_iter().is_ok(),
    }
}

/// Whether it has a length and items: text and mappings too.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Undefined | ValueKind::Seq | ValueKind::Map | ValueKind::String
    )
}

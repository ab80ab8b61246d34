//! The formats of strings that are enforced.

/// What becomes of a format.
pub enum Format {
    /// llguidance enforces it.
    Known,
    /// Enforced by this pattern.
    Pattern(String),
    /// Names a representation and no set of texts, as OpenAPI's registry does.
    Descriptive,
    Unsupported,
}

const LONG_MONTHS: &str = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])";
const SHORT_MONTHS: &str = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)";
const FEBRUARY: &str = "02-(?:0[1-9]|1[0-9]|2[0-8])";
const LEAP_YEAR: &str =
    "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
/// Not the year 0, which calendars of programs do not have.
const YEAR: &str = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";

/// RFC 3339's full-date, leap years told apart.
fn date() -> String {
    format!("(?:{YEAR}-(?:{LONG_MONTHS}|{SHORT_MONTHS}|{FEBRUARY})|{LEAP_YEAR}-02-29)")
}

/// RFC 3339's full-time. A leap second is taken in UTC alone, where it can be told by its digits.
fn time() -> String {
    let fraction = r"(?:\.[0-9]+)?";
    let offset = "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
    let regular = format!("(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{fraction}{offset}");
    format!("(?:{regular}|23:59:60{fraction}(?:[zZ]|[+-]00:00))")
}

const POINTER: &str = "(?:/(?:[^~/]|~[01])*)*";

const BASE64: &str = "[A-Za-z0-9+/]";

/// RFC 9562's UUID of the version that the name ends with.
fn uuid(name: &str) -> String {
    let version = &name["uuid".len()..];
    let hex = "[0-9a-fA-F]";
    format!("{hex}{{8}}-{hex}{{4}}-{version}{hex}{{3}}-[89abAB]{hex}{{3}}-{hex}{{12}}")
}

pub fn format(name: &str) -> Format {
    let pattern = match name {
        "date" => date(),
        "time" => time(),
        "date-time" => format!("{}[tT]{}", date(), time()),
        "json-pointer" => POINTER.to_owned(),
        "relative-json-pointer" => format!("(?:0|[1-9][0-9]*)(?:#|{POINTER})"),
        "duration" | "email" | "hostname" | "ipv4" | "ipv6" | "uuid" | "uri" => {
            return Format::Known
        }
        // What schema generators write for types that have no format in JSON Schema.
        "uuid1" | "uuid3" | "uuid4" | "uuid5" | "uuid6" | "uuid7" | "uuid8" => uuid(name),
        "base64" => format!("(?:{BASE64}{{4}})*(?:{BASE64}{{2}}==|{BASE64}{{3}}=)?"),
        "base64url" => "[A-Za-z0-9_-]*={0,2}".to_owned(),
        "binary" | "byte" | "double" | "float" | "int32" | "int64" | "password" => {
            return Format::Descriptive
        }
        // Any text is one.
        "path" | "file-path" | "directory-path" | "html" | "markdown" => {
            return Format::Descriptive
        }
        _ => return Format::Unsupported,
    };
    Format::Pattern(format!("^(?:{pattern})$"))
}

const HEX_GROUP: &str = "[0-9a-fA-F]{1,4}";
const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const LABEL: &str = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
const ATOM: &str = "[a-zA-Z0-9_+-]+";
const URI_CHARACTER: &str = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})";

/// Texts of a format that llguidance knows inside JSON strings: not all of them, but nothing else.
pub fn text_pattern(name: &str) -> Option<String> {
    let pattern = match name {
        "duration" => {
            let time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
            let date = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
            format!("P(?:{date}(?:{time})?|{time}|[0-9]+W)")
        }
        "email" => format!(r"{ATOM}(?:\.{ATOM})*@{LABEL}(?:\.{LABEL})*"),
        "hostname" => format!(r"{LABEL}(?:\.{LABEL}){{0,2}}"),
        "ipv4" => format!(r"(?:{OCTET}\.){{3}}{OCTET}"),
        "ipv6" => format!(
            "(?:{HEX_GROUP}:){{7}}{HEX_GROUP}|(?:{HEX_GROUP}:){{1,6}}:{HEX_GROUP}|\
             ::(?:{HEX_GROUP}(?::{HEX_GROUP}){{0,6}})?"
        ),
        "uuid" => "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}".to_owned(),
        "uri" => format!(
            r"[a-z][a-z0-9+.-]*:(?://{LABEL}(?:\.{LABEL})*(?::[0-9]{{1,5}})?(?:/{URI_CHARACTER}*)*|{URI_CHARACTER}+)(?:\?{URI_CHARACTER}*)?(?:#{URI_CHARACTER}*)?"
        ),
        _ => return None,
    };
    Some(format!("^(?:{pattern})$"))
}

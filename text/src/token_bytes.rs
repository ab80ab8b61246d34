//! The bytes that a vocabulary's spellings stand for.

/// The byte that a piece `<0xNN>` stands for.
pub fn fallback_byte(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// Undoes GPT-2's alphabet, in which the bytes that are no printable Latin-1 character are moved to
/// U+0100 and up, in order.
pub fn byte_level_bytes(name: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    for character in name.chars() {
        match byte_of(character) {
            Some(byte) => bytes.push(byte),
            None => {
                let mut buffer = [0; 4];
                bytes.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
            }
        }
    }
    bytes
}

fn byte_of(character: char) -> Option<u8> {
    match character as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// GPT-2's spelling of bytes.
pub fn byte_level_name(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| character_of(*byte)).collect()
}

fn character_of(byte: u8) -> char {
    let code = u32::from(byte);
    let moved = match byte {
        0..=0x20 => 0x100 + code,
        0x7f..=0xa0 => 0x121 + code - 0x7f,
        0xad => 0x143,
        _ => code,
    };
    char::from_u32(moved).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_alphabet_covers_every_byte_once() {
        let mut seen: Vec<u8> = (0..0x144)
            .filter_map(char::from_u32)
            .filter_map(byte_of)
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_level_bytes("ĠĊ"), b" \n");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(byte_level_bytes(&byte_level_name(&all)), all);
    }

    #[test]
    fn fallback_bytes() {
        assert_eq!(fallback_byte("<0x0A>"), Some(10));
        assert_eq!(fallback_byte("<0x0A"), None);
        assert_eq!(fallback_byte("<0x123>"), None);
    }
}

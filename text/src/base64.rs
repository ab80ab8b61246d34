//! Base64 as RFC 4648 has it.

use crate::error::TextError;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0_u32, |group, byte| (group << 8) | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for index in 0..4 {
            if index <= chunk.len() {
                let sextet = (group >> (18 - 6 * index)) & 63;
                text.push(ALPHABET[sextet as usize] as char);
            } else {
                text.push('=');
            }
        }
    }
    text
}

pub fn decode(text: &[u8]) -> Result<Vec<u8>, TextError> {
    let bad = || TextError::failed("malformed base64");
    let digits = text
        .iter()
        .rposition(|byte| *byte != b'=')
        .map_or(0, |last| last + 1);
    if text.len() - digits > 2 || digits % 4 == 1 {
        return Err(bad());
    }
    let mut bytes = Vec::with_capacity(digits * 3 / 4);
    for chunk in text[..digits].chunks(4) {
        let mut group = 0_u32;
        for byte in chunk {
            let sextet = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return Err(bad()),
            };
            group = (group << 6) | u32::from(sextet);
        }
        group <<= 6 * (4 - chunk.len());
        bytes.extend(&group.to_be_bytes()[1..chunk.len()]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_rfc_4648_tests_it() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ];
        for (plain, encoded) in cases {
            assert_eq!(encode(plain.as_bytes()), encoded);
            assert_eq!(
                decode(encoded.as_bytes()).unwrap_or_default(),
                plain.as_bytes()
            );
        }
        for bad in ["Z", "Zm9v=====", "Z*==", "Zg==Zg=="] {
            assert!(decode(bad.as_bytes()).is_err());
        }
    }
}

//! Patterns of file names, as in a shell.
//!
//! A pattern matches one name at a time, with one saved position to return to, so the time is at most the
//! product of both lengths. Source: own.

/// A pattern of one name: `*` any characters, `?` one, `[ab]`, `[a-c]` one of these, `[!ab]` one other.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Many,
    One,
    Char(char),
    /// Ranges, and whether a character must be in one of them.
    Class(Vec<(char, char)>, bool),
}

impl Token {
    fn matches(&self, found: char) -> bool {
        match self {
            Self::Many => false,
            Self::One => true,
            Self::Char(expected) => *expected == found,
            Self::Class(ranges, is_in) => {
                ranges.iter().any(|(first, last)| (first..=last).contains(&&found)) == *is_in
            }
        }
    }
}

impl Pattern {
    /// Parses a pattern; the error says what is wrong with it.
    pub fn new(text: &str) -> std::result::Result<Self, &'static str> {
        let (mut tokens, mut chars) = (Vec::new(), text.chars().peekable());
        while let Some(next) = chars.next() {
            tokens.push(match next {
                '*' if tokens.last() == Some(&Token::Many) => continue,
                '*' => Token::Many,
                '?' => Token::One,
                '[' => {
                    let is_in = chars.next_if(|&next| next == '!' || next == '^').is_none();
                    let mut ranges = Vec::new();
                    loop {
                        let first = chars.next().ok_or("[ has no ]")?;
                        // A ] that comes first is a character of the class.
                        if first == ']' && !ranges.is_empty() {
                            break;
                        }
                        let mut ahead = chars.clone();
                        match (ahead.next(), ahead.next()) {
                            (Some('-'), Some(last)) if last != ']' => {
                                chars = ahead;
                                ranges.push((first, last));
                            }
                            _ => ranges.push((first, first)),
                        }
                    }
                    Token::Class(ranges, is_in)
                }
                other => Token::Char(other),
            });
        }
        Ok(Self { tokens })
    }

    /// Whether the pattern matches the whole of `name`.
    pub fn matches(&self, name: &str) -> bool {
        let (mut at, mut rest) = (0, name.chars());
        // The last `*`, and the name after the characters that it has taken.
        let mut back: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let mut ahead = rest.clone();
            match (self.tokens.get(at), ahead.next()) {
                (None, None) => return true,
                (Some(Token::Many), _) => {
                    back = Some((at, rest.clone()));
                    at += 1;
                }
                (Some(token), Some(next)) if token.matches(next) => (at, rest) = (at + 1, ahead),
                _ => {
                    // The last `*` takes one character more. Earlier ones need no other try: what they could
                    // take in addition, the last one can take.
                    let Some((star, taken)) = &mut back else { return false };
                    if taken.next().is_none() {
                        return false;
                    }
                    (at, rest) = (*star + 1, taken.clone());
                }
            }
        }
    }

    /// The first character of every name that the pattern matches, if there is only one.
    pub fn first(&self) -> Option<char> {
        match self.tokens.first() {
            Some(Token::Char(first)) => Some(*first),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a pattern matches, the obvious way: by all splits.
    fn matches_slowly(tokens: &[Token], name: &[char]) -> bool {
        match tokens.split_first() {
            None => name.is_empty(),
            Some((Token::Many, rest)) => (0..=name.len()).any(|n| matches_slowly(rest, &name[n..])),
            Some((token, rest)) => name
                .split_first()
                .is_some_and(|(&first, name)| token.matches(first) && matches_slowly(rest, name)),
        }
    }

    #[test]
    fn patterns_of_names() {
        let parts = ["*", "?", "a", "b", "[ab]", "[!a]", "[a-c]", "[]x]", "\u{e4}"];
        let letters = ['a', 'b', 'c', ']', '\u{e4}'];
        let mut state = 1_u64;
        let mut draw = |n: usize| {
            state = crate::seed::mix(state);
            state as usize % n
        };
        let mut n_matches = 0;
        for _ in 0..20_000 {
            let text: String = (0..draw(6)).map(|_| parts[draw(parts.len())]).collect();
            let name: Vec<char> = (0..draw(6)).map(|_| letters[draw(letters.len())]).collect();
            let pattern = Pattern::new(&text).unwrap();
            let expected = matches_slowly(&pattern.tokens, &name);
            assert_eq!(pattern.matches(&name.iter().collect::<String>()), expected, "{text} {name:?}");
            n_matches += u32::from(expected);
        }
        assert!(n_matches > 1000);
        // No number of stars takes more than the product of both lengths.
        assert!(!Pattern::new(&"*a".repeat(200)).unwrap().matches(&"a".repeat(199)));
    }
}

//! Patterns of file names, as in a shell, and ranges of numbers in them.
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

/// The names that a range of numbers stands for: `a_{08..10}.tar` is `a_08.tar`, `a_09.tar` and `a_10.tar`,
/// and so is `a__OP_08..10_CL_.tar`, as NeMo writes it. Several ranges are combined, the last one fastest.
/// None if there is no range.
///
/// # Errors
/// For more than `most` names.
pub fn numbered(text: &str, most: usize) -> Option<std::result::Result<Vec<String>, String>> {
    const BRACKETS: [(&str, &str); 2] = [("{", "}"), ("_OP_", "_CL_")];
    let find = |(open, close): (&str, &str)| {
        let mut from = 0;
        loop {
            let start = from + text[from..].find(open)?;
            let inner = &text[start + open.len()..];
            let end = inner.find(close)?;
            if let Some(range) = range_of(&inner[..end]) {
                return Some((start, range, &inner[end + close.len()..]));
            }
            from = start + open.len();
        }
    };
    let (start, (first, last, width), rest) =
        BRACKETS.into_iter().filter_map(find).min_by_key(|&(start, ..)| start)?;
    let too_many = || Some(Err(format!("{text:?} stands for more than {most} names")));
    let rests = match numbered(rest, most) {
        None => vec![rest.to_owned()],
        Some(Ok(rests)) => rests,
        Some(Err(_)) => return too_many(),
    };
    let n = last - first;
    if n >= most as u64 || (n + 1).saturating_mul(rests.len() as u64) > most as u64 {
        return too_many();
    }
    let name = |number: u64, rest: &String| format!("{}{number:0width$}{rest}", &text[..start]);
    Some(Ok((first..=last).flat_map(|number| rests.iter().map(move |rest| name(number, rest))).collect()))
}

/// The numbers of `08..10`, and the digits that each has at least.
fn range_of(text: &str) -> Option<(u64, u64, usize)> {
    const MOST_DIGITS: usize = 18;
    let (first, last) = text.split_once("..")?;
    let number = |text: &str| {
        let is_one =
            (1..=MOST_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_one)
    };
    let (from, to) = (number(first)?, number(last)?);
    let is_padded = [first, last].iter().any(|text| text.len() > 1 && text.starts_with('0'));
    (from <= to).then_some((from, to, if is_padded { first.len().max(last.len()) } else { 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_numbers() {
        let names = |text: &str| numbered(text, 100).map(|found| found.map(|names| names.join(" ")));
        for (text, expected) in [
            ("a_{8..10}.tar", "a_8.tar a_9.tar a_10.tar"),
            ("a_{08..10}.tar", "a_08.tar a_09.tar a_10.tar"),
            ("a__OP_0..1_CL_.tar", "a_0.tar a_1.tar"),
            ("b{1..2}/a__OP_0..1_CL_.tar", "b1/a_0.tar b1/a_1.tar b2/a_0.tar b2/a_1.tar"),
            ("{x}{3..3}", "{x}3"),
            ("{000..001}", "000 001"),
        ] {
            assert_eq!(names(text).unwrap().unwrap(), expected, "{text}");
        }
        for text in ["a.tar", "a_{1,2}.tar", "{2..1}", "{..}", "{1..x}", "{1..}", "_OP_1..2", "{-1..2}"] {
            assert!(names(text).is_none(), "{text}");
        }
        for text in ["{0..100}", "{0..999999999999999999}", "{1..50}{1..3}"] {
            assert!(names(text).unwrap().is_err(), "{text}");
        }
        assert_eq!(numbered("{0..99}", 100).unwrap().unwrap().len(), 100);
    }

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

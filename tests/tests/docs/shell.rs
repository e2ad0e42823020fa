//! Parses the shell syntax that the pages use, without running it.

const SEPARATORS: &[&str] = &["|", "||", "&&", ";", "&"];

const KEYWORDS: &[&str] = &["if", "then", "do", "while", "!"];

/// Drops `sudo`, variable assignments and redirections.
pub(crate) fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    for (word, quoted) in split(line) {
        if !quoted && SEPARATORS.contains(&word.as_str()) {
            commands.push(Vec::new());
        } else if let Some(last) = commands.last_mut() {
            last.push(word);
        }
    }
    let mut commands: Vec<Vec<String>> = commands.into_iter().map(itself).collect();
    commands.retain(|command| !command.is_empty());
    commands
}

fn itself(mut words: Vec<String>) -> Vec<String> {
    loop {
        let is_variable = |word: &str| {
            word.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            })
        };
        let skip = match words.first().map(String::as_str) {
            Some("sudo") if words.get(1).is_some_and(|word| word == "-u") => 3,
            Some("sudo" | "exec") => 1,
            Some(word) if is_variable(word) || KEYWORDS.contains(&word) => 1,
            _ => return words,
        };
        words.drain(..skip.min(words.len()));
    }
}

/// Returns words, with `true` for quoted words. Drops redirections and comments.
fn split(line: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut word = String::new();
    let (mut quote, mut quoted, mut redirects) = (None, false, false);
    let mut characters = line.chars().chain([' ']).peekable();
    while let Some(c) = characters.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => (quote, quoted) = (Some(c), true),
            ('\\', None) => word.extend(characters.next()),
            ('#', None) if word.is_empty() && !quoted => break,
            (' ', None) => {
                if (!word.is_empty() || quoted) && !std::mem::take(&mut redirects) {
                    found.push((std::mem::take(&mut word), quoted));
                } else if !word.is_empty() {
                    word.clear();
                }
                quoted = false;
            }
            ('<' | '>', None) => {
                // A number before a redirection is a file descriptor.
                if !word.is_empty() && !word.chars().all(|c| c.is_ascii_digit()) {
                    found.push((std::mem::take(&mut word), quoted));
                }
                word.clear();
                while characters
                    .next_if(|next| matches!(next, '<' | '>' | '&'))
                    .is_some()
                {}
                while characters.next_if_eq(&' ').is_some() {}
                (redirects, quoted) = (true, false);
            }
            ('|' | ';' | '&', None) => {
                if !word.is_empty() && !std::mem::take(&mut redirects) {
                    found.push((std::mem::take(&mut word), quoted));
                }
                word.clear();
                let mut between = c.to_string();
                between.extend(characters.next_if_eq(&c));
                found.push((between, false));
                quoted = false;
            }
            (c, _) => word.push(c),
        }
    }
    found
}

#[test]
fn lines_split_like_a_shell() {
    for (line, wanted) in [
        (
            "curl -i http://localhost/",
            &[&["curl", "-i", "http://localhost/"][..]][..],
        ),
        ("sudo -u sesame a 'b c' # d", &[&["a", "b c"]]),
        (
            "a <b >c 2>&1 | d && X=1 e || f \"g|h\"",
            &[&["a"], &["d"], &["e"], &["f", "g|h"]],
        ),
        ("a; b>c", &[&["a"], &["b"]]),
        ("for '' x", &[&["for", "", "x"]]),
    ] {
        let wanted: Vec<Vec<String>> = wanted
            .iter()
            .map(|words| words.iter().map(ToString::to_string).collect())
            .collect();
        assert_eq!(commands(line), wanted, "{line}");
    }
}

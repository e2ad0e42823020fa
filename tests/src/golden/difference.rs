//! The lines in which two strings differ, short enough for a test's output.

const SHOWN: usize = 20;
const AROUND: usize = 3;

/// Returns the lines from the first difference to the last, with context.
pub fn excerpt(committed: &str, now: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (committed.lines().collect(), now.lines().collect());
    let before = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let after = old[before..]
        .iter()
        .rev()
        .zip(new[before..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let mut lines = vec![format!("@@ line {} @@", before + 1)];
    let equal = |line: &&str| format!("  {line}");
    lines.extend(old[before.saturating_sub(AROUND)..before].iter().map(equal));
    lines.extend(shown(&old[before..old.len() - after], '-'));
    lines.extend(shown(&new[before..new.len() - after], '+'));
    lines.extend(old[old.len() - after..].iter().take(AROUND).map(equal));
    lines.join("\n")
}

fn shown(lines: &[&str], sign: char) -> Vec<String> {
    let mut shown: Vec<String> = lines
        .iter()
        .take(SHOWN)
        .map(|line| format!("{sign} {line}"))
        .collect();
    if lines.len() > SHOWN {
        shown.push(format!("{sign} ... {} more lines", lines.len() - SHOWN));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_shows_only_changed_lines() {
        let old = "1\n2\n3\n4\nold\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nnew\nmore\n6\n7\n8\n9\n";
        assert_eq!(
            excerpt(old, new),
            "@@ line 5 @@\n  2\n  3\n  4\n- old\n+ new\n+ more\n  6\n  7\n  8"
        );
        assert_eq!(excerpt("", "a\n"), "@@ line 1 @@\n+ a");
    }
}

//! When changes that drain connections are applied.

use sesame_proto::digest::LISTENERS_DIGITS;
use sesame_proto::schema::{MaintenanceWindow as Window, Rollout};

use super::clients::unknown;
use super::edge::excerpt;
use crate::syntax::limits;
use sesame_kinds::api::{MaintenanceWindow, OpenEnum, RolloutSettings, Weekday};

/// Annotation of a Gateway with the digest of an approved change.
pub(super) const APPROVAL: &str = "projectsesame.io/approve-draining";
/// As in the schema.
const MAX_WINDOWS: usize = 16;
const DAY: u32 = 24 * 60;

/// Returns `None` if all values are defaults. Validation has already rejected invalid settings.
pub(super) fn of(settings: &RolloutSettings) -> Option<Rollout> {
    let RolloutSettings {
        hold_draining,
        approve_draining,
        windows,
    } = settings;
    let hold_draining = *hold_draining == Some(true);
    let windows = windows.iter().flatten().map(windows_of);
    let mut windows: Vec<Window> = windows.filter_map(Result::ok).flatten().collect();
    windows.sort_by_key(|it| (it.start, it.minutes));
    windows.dedup();
    hold_draining.then(|| Rollout {
        hold_draining,
        approved: approve_draining.clone().unwrap_or_default(),
        windows,
    })
}

/// Each error starts with the name of the field in `spec.rollout`.
pub(super) fn faults(settings: &RolloutSettings) -> Vec<String> {
    let RolloutSettings {
        hold_draining: _,
        approve_draining,
        windows,
    } = settings;
    let mut faults = Vec::new();
    if let Some(Err(why)) = approve_draining.as_deref().map(check_approval) {
        faults.push(format!("approveDraining: {why}"));
    }
    let windows = windows.as_deref().unwrap_or_default();
    faults.extend(limits::entries("windows", windows.len(), 0..=MAX_WINDOWS).err());
    for (i, window) in windows.iter().take(MAX_WINDOWS).enumerate() {
        let wrong = windows_of(window).err();
        faults.extend(wrong.map(|why| format!("windows[{i}].{why}")));
    }
    faults
}

pub(super) fn check_approval(digest: &str) -> Result<(), String> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digest.len() == LISTENERS_DIGITS && digest.bytes().all(is_hex) {
        return Ok(());
    }
    let digest = excerpt(digest);
    Err(format!(
        "{digest:?}: expected the {LISTENERS_DIGITS} digits that the status of a host shows"
    ))
}

/// Returns a window for each day.
fn windows_of(window: &MaintenanceWindow) -> Result<Vec<Window>, String> {
    let MaintenanceWindow { days, start, end } = window;
    let start = minute(start).map_err(|why| format!("start: {why}"))?;
    let end = minute(end).map_err(|why| format!("end: {why}"))?;
    let minutes = if end > start {
        end - start
    } else {
        end + DAY - start
    };
    let days: Vec<Result<u32, String>> = match days {
        None => (0..7).map(Ok).collect(),
        Some(days) => {
            limits::entries("days", days.len(), 1..=7)?;
            let days = days.iter().enumerate();
            days.map(|(i, day)| number(day).map_err(|why| format!("days[{i}]{why}")))
                .collect()
        }
    };
    days.into_iter()
        .map(|day| {
            Ok(Window {
                start: day? * DAY + start,
                minutes,
            })
        })
        .collect()
}

/// Monday is 0.
fn number(day: &Weekday) -> Result<u32, String> {
    let days = [
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
        Weekday::Saturday,
        Weekday::Sunday,
    ];
    let place = days.iter().position(|it| it == day);
    let place = place.and_then(|it| u32::try_from(it).ok());
    place.ok_or_else(|| {
        let (value, words) = day.unknown().unwrap_or_default();
        unknown("", value, words)
    })
}

fn minute(text: &str) -> Result<u32, String> {
    let wrong = || format!("{:?}: expected a time such as 02:00", excerpt(text));
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    let read = |digits: &str, most: u32| {
        let is_plain = digits.len() == 2 && digits.bytes().all(|it| it.is_ascii_digit());
        let number = digits.parse::<u32>().ok().filter(|it| *it <= most);
        number.filter(|_| is_plain).ok_or_else(wrong)
    };
    Ok(read(hours, 23)? * 60 + read(minutes, 59)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: Option<&[&str]>, start: &str, end: &str) -> MaintenanceWindow {
        MaintenanceWindow {
            days: days.map(|days| days.iter().map(|&day| day.into()).collect()),
            start: start.to_owned(),
            end: end.to_owned(),
        }
    }

    fn with(windows: &[MaintenanceWindow]) -> RolloutSettings {
        RolloutSettings {
            hold_draining: Some(true),
            approve_draining: None,
            windows: Some(windows.to_vec()),
        }
    }

    #[test]
    fn windows_are_minutes_of_the_week() {
        let night = window(Some(&["Sunday", "Monday"]), "22:30", "01:00");
        let rollout = of(&with(&[night.clone(), night])).unwrap();
        let found: Vec<_> = rollout
            .windows
            .iter()
            .map(|it| (it.start, it.minutes))
            .collect();
        assert_eq!(found, [(22 * 60 + 30, 150), (6 * DAY + 22 * 60 + 30, 150)]);
        let daily = of(&with(&[window(None, "02:00", "02:00")])).unwrap();
        assert_eq!(daily.windows.len(), 7);
        assert!(daily.windows.iter().all(|it| it.minutes == DAY));
        assert_eq!(of(&RolloutSettings::default()), None);
    }

    #[test]
    fn invalid_rollout_names_field_and_value() {
        for (window, expected) in [
            (window(None, "2:00", "04:00"), "windows[0].start: \"2:00\""),
            (window(None, "02:00", "24:00"), "windows[0].end: \"24:00\""),
            (window(None, "+2:00", "04:00"), "expected a time such as"),
            (
                window(Some(&["Mon"]), "02:00", "04:00"),
                "windows[0].days[0]: \"Mon\" is not one of",
            ),
            (
                window(Some(&[]), "02:00", "04:00"),
                "windows[0].days has 0 entries",
            ),
        ] {
            let found = faults(&with(&[window])).join("; ");
            assert!(found.contains(expected), "{expected}: {found}");
        }
        let approved = RolloutSettings {
            approve_draining: Some("ABC".to_owned()),
            ..RolloutSettings::default()
        };
        let found = faults(&approved).join("; ");
        assert!(
            found.starts_with("approveDraining: \"ABC\": expected the 16 digits"),
            "{found}"
        );
        assert!(faults(&with(&vec![window(None, "02:00", "03:00"); 17]))[0].contains("17 entries"));
    }
}

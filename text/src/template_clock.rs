//! `strftime_now`: Python's `strftime` in the C locale for a moment given from outside.

/// Civil time without a zone.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    days_since_epoch: i64,
    seconds_since_epoch: i64,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

impl Moment {
    /// `seconds` since 1970-01-01 00:00 of the local clock.
    pub fn from_local_seconds(seconds: i64) -> Self {
        let days = seconds.div_euclid(86_400);
        let of_day = seconds.rem_euclid(86_400) as u32;
        let (year, month, day) = civil_from_days(days);
        Self {
            year,
            month,
            day,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
            days_since_epoch: days,
            seconds_since_epoch: seconds,
        }
    }

    pub fn format(&self, pattern: &str) -> String {
        let mut text = String::new();
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            if character != '%' {
                text.push(character);
                continue;
            }
            match characters.next() {
                // glibc: `-` drops the padding.
                Some('-') => match characters.next() {
                    Some(directive) => text.push_str(unpadded(&self.directive(directive))),
                    None => text.push_str("%-"),
                },
                Some(directive) => text.push_str(&self.directive(directive)),
                None => text.push('%'),
            }
        }
        text
    }

    fn directive(&self, directive: char) -> String {
        let hour12 = (self.hour + 11) % 12 + 1;
        let half = if self.hour < 12 { "AM" } else { "PM" };
        match directive {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'C' => format!("{:02}", self.year.div_euclid(100)),
            'm' => format!("{:02}", self.month),
            'B' => MONTHS[self.month as usize - 1].to_owned(),
            'b' | 'h' => MONTHS[self.month as usize - 1][..3].to_owned(),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year()),
            'A' => WEEKDAYS[self.weekday()].to_owned(),
            'a' => WEEKDAYS[self.weekday()][..3].to_owned(),
            'w' => self.weekday().to_string(),
            'u' => ((self.weekday() + 6) % 7 + 1).to_string(),
            'U' => format!(
                "{:02}",
                (self.day_of_year() + 6 - self.weekday() as i64) / 7
            ),
            'W' => {
                let from_monday = (self.weekday() as i64 + 6) % 7;
                format!("{:02}", (self.day_of_year() + 6 - from_monday) / 7)
            }
            'H' => format!("{:02}", self.hour),
            'I' => format!("{hour12:02}"),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'f' => "000000".to_owned(),
            'p' => half.to_owned(),
            's' => self.seconds_since_epoch.to_string(),
            'c' => self.format("%a %b %e %H:%M:%S %Y"),
            'x' | 'D' => self.format("%m/%d/%y"),
            'X' | 'T' => self.format("%H:%M:%S"),
            'F' => self.format("%Y-%m-%d"),
            'R' => self.format("%H:%M"),
            'r' => self.format("%I:%M:%S %p"),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            'z' | 'Z' => String::new(),
            '%' => "%".to_owned(),
            other => format!("%{other}"),
        }
    }

    fn weekday(&self) -> usize {
        (self.days_since_epoch + 4).rem_euclid(7) as usize
    }

    fn day_of_year(&self) -> i64 {
        self.days_since_epoch - days_from_civil(self.year, 1, 1) + 1
    }
}

fn unpadded(text: &str) -> &str {
    let trimmed = text.trim_start_matches(['0', ' ']);
    if trimmed.is_empty() {
        &text[text.len() - 1..]
    } else {
        trimmed
    }
}

/// The proleptic Gregorian calendar, counted in years that begin in March so that the leap day is
/// the last of a year.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = i64::from((month + 9) % 12);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = (shifted_month as u32 + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from Python 3.11's `datetime(2026, 3, 5, 14, 7, 9).strftime`.
    #[test]
    fn formats_as_python_does() {
        let moment = Moment::from_local_seconds(1_772_719_629);
        let cases = [
            ("%Y-%m-%d %H:%M:%S", "2026-03-05 14:07:09"),
            ("%d %b %Y", "05 Mar 2026"),
            ("%A, %B %-d", "Thursday, March 5"),
            ("%I:%M %p %j %U %W %u %w", "02:07 PM 064 09 09 4 4"),
            ("%c|%x|%X", "Thu Mar  5 14:07:09 2026|03/05/26|14:07:09"),
            ("100%%", "100%"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(moment.format(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn calendar_round_trip() {
        for days in (-800_000..800_000).step_by(37) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
        assert_eq!(civil_from_days(11_016), (2000, 2, 29));
    }
}

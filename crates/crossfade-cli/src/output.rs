//! Formatting of numbers for terminal output.

/// An integer with separators: 1234567 becomes `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in kB, MB or GB (powers of 1000).
pub fn bytes(n: u64) -> String {
    match n {
        0..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}

/// A duration in seconds, minutes or hours.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..100 => format!("{whole} s"),
        100..6000 => format!("{} min", (whole + 30) / 60),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 216_141_136].map(thousands), ["0", "999", "1,000", "216,141,136"]);
        assert_eq!([1500, 2_500_000, 864_564_544_000].map(bytes), ["1.5 kB", "2.5 MB", "864.56 GB"]);
        assert_eq!([1.2, 150.0, 7200.0].map(duration), ["1 s", "3 min", "2.0 h"]);
    }
}

//! The grammar of numbers, byte by byte (RFC 8259 section 6).

/// How much of a number has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// `-`
    Minus,
    /// `0` as the whole integer part.
    Zero,
    /// Digits of the integer part.
    Integer,
    /// `.`
    Dot,
    /// Digits behind the dot.
    Fraction,
    /// `e`
    Exponent,
    /// `e+`, `e-`
    ExponentSign,
    /// Digits of the exponent.
    ExponentDigits,
}

impl Number {
    /// The state after a number's first byte; `None` where no number begins so.
    pub(super) fn begin(byte: u8) -> Option<Number> {
        match byte {
            b'-' => Some(Number::Minus),
            b'0' => Some(Number::Zero),
            b'1'..=b'9' => Some(Number::Integer),
            _ => None,
        }
    }

    /// The state after `byte`; `None` where the number doesn't go on so.
    pub(super) fn next(self, byte: u8) -> Option<Number> {
        match (self, byte) {
            (Number::Integer, b'0'..=b'9') => Some(Number::Integer),
            (Number::Minus, _) => Number::begin(byte).filter(|_| byte != b'-'),
            (Number::Zero | Number::Integer, b'.') => Some(Number::Dot),
            (Number::Zero | Number::Integer | Number::Fraction, b'e' | b'E') => Some(Number::Exponent),
            (Number::Dot | Number::Fraction, b'0'..=b'9') => Some(Number::Fraction),
            (Number::Exponent, b'+' | b'-') => Some(Number::ExponentSign),
            (Number::Exponent | Number::ExponentSign | Number::ExponentDigits, b'0'..=b'9') => {
                Some(Number::ExponentDigits)
            }
            _ => None,
        }
    }

    /// Whether a number may end here.
    pub(super) fn complete(self) -> bool {
        matches!(
            self,
            Number::Zero | Number::Integer | Number::Fraction | Number::ExponentDigits
        )
    }
}

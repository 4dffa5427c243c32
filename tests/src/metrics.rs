//! A metrics page as numbers.

/// The samples of a page in OpenMetrics text.
#[derive(Clone, Debug)]
pub struct MetricsPage {
    text: String,
}

impl MetricsPage {
    /// The page with this text.
    #[must_use]
    pub fn new(text: String) -> MetricsPage {
        MetricsPage { text }
    }

    /// The sum of `name`'s samples, optionally of those alone whose labels hold `label`
    /// (`path="kernel"`). None where there's no such sample.
    #[must_use]
    pub fn sum(&self, name: &str, label: &str) -> Option<f64> {
        let values: Vec<f64> = self
            .text
            .lines()
            .filter_map(|line| sample(line, name, label))
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// The text, for a failure's message.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn sample(line: &str, name: &str, label: &str) -> Option<f64> {
    let rest = line.strip_prefix(name)?;
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => rest.rsplit_once('}')?,
        None => ("", rest),
    };
    if !labels.contains(label) || !value.starts_with(' ') {
        return None;
    }
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_name_and_label() {
        let page =
            MetricsPage::new("f_total{path=\"a\"} 1\nf_total{path=\"b\"} 2\nf_total_x 9\ng 4\n".to_owned());
        assert_eq!(page.sum("f_total", ""), Some(3.0));
        assert_eq!(page.sum("f_total", "path=\"b\""), Some(2.0));
        assert_eq!(page.sum("g", ""), Some(4.0));
        assert_eq!(page.sum("f", ""), None);
    }
}

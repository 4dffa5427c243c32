//! The layer table of STYLE.md as data.

use std::ops::RangeInclusive;

/// One module of router-userspace.
pub(crate) struct Layer {
    /// Its name.
    pub(crate) module: &'static str,
    /// Its layer.
    pub(crate) layer: u8,
    /// What it may name of its own crate beside itself.
    pub(crate) may: May,
    /// Whether it may hold `async` and `await`.
    pub(crate) awaits: bool,
}

/// What a module may import.
pub(crate) enum May {
    /// Every module of these layers.
    Layers(RangeInclusive<u8>),
    /// These modules, and layer 0.
    Modules(&'static [&'static str]),
}

const fn layer(module: &'static str, layer: u8, may: May, awaits: bool) -> Layer {
    Layer {
        module,
        layer,
        may,
        awaits,
    }
}

/// The table. A module that isn't in it is a breach: it has to get a row in STYLE.md first.
pub(crate) const LAYERS: &[Layer] = &[
    layer("types", 0, May::Modules(&[]), false),
    layer("telemetry", 0, May::Modules(&[]), false),
    layer("proto", 1, May::Modules(&[]), false),
    layer("net", 1, May::Modules(&[]), true),
    layer("prefix", 2, May::Modules(&["proto"]), false),
    layer("policy", 3, May::Modules(&["prefix"]), false),
    layer("backend", 4, May::Layers(0..=3), true),
    layer("engine", 4, May::Layers(0..=3), false),
    layer(
        "simulate",
        5,
        May::Modules(&["prefix", "policy", "engine"]),
        false,
    ),
    layer("datapath", 5, May::Modules(&["net"]), true),
    layer("server", 6, May::Layers(0..=5), true),
    layer("cli", 7, May::Layers(0..=6), true),
];

/// A crate that only one module may name.
pub(crate) struct Door {
    /// The crate as a path names it.
    pub(crate) krate: &'static str,
    /// The module that may.
    pub(crate) module: &'static str,
}

/// One door to each runtime: one folder is enough to leave it.
pub(crate) const DOORS: &[Door] = &[
    Door {
        krate: "tokio_uring",
        module: "net",
    },
    Door {
        krate: "socket2",
        module: "net",
    },
    Door {
        krate: "rustls",
        module: "net",
    },
    Door {
        krate: "aya",
        module: "datapath",
    },
];

/// What router-ebpf may name beside itself; `core` comes with the language.
pub(crate) const EBPF_MAY: &[&str] = &["router_common", "aya_ebpf", "aya_log_ebpf", "core"];

/// What router-ebpf may depend on, as its manifest names it.
pub(crate) const EBPF_DEPENDENCIES_MAY: &[&str] = &["router-common", "aya-ebpf", "aya-log-ebpf"];

/// The row of `module`.
pub(crate) fn row(module: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|row| row.module == module)
}

impl Layer {
    /// Whether this module may name `other`.
    pub(crate) fn may_name(&self, other: &Layer) -> bool {
        if self.module == other.module {
            return true;
        }
        match &self.may {
            May::Layers(range) => range.contains(&other.layer),
            May::Modules(names) => other.layer == 0 || names.contains(&other.module),
        }
    }

    /// The rule in words, for a breach's message.
    pub(crate) fn may_in_words(&self) -> String {
        match &self.may {
            May::Layers(range) => format!("layers {} to {}", range.start(), range.end()),
            May::Modules([]) => "types, telemetry".to_owned(),
            May::Modules(names) => format!("types, telemetry, {}", names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(from: &str, to: &str) -> bool {
        row(from)
            .expect("in the table")
            .may_name(row(to).expect("in the table"))
    }

    #[test]
    fn nobody_may_name_a_higher_layer() {
        for from in LAYERS {
            for to in LAYERS.iter().filter(|to| to.layer > from.layer) {
                assert!(!from.may_name(to), "{} names {}", from.module, to.module);
            }
        }
    }

    #[test]
    fn the_exceptions_inside_lower_layers_hold() {
        assert!(!may("proto", "net") && !may("net", "proto"));
        assert!(!may("policy", "proto"));
        assert!(!may("datapath", "backend") && !may("datapath", "policy"));
        assert!(!may("engine", "backend") && !may("backend", "engine"));
        assert!(may("datapath", "net") && may("policy", "prefix") && may("server", "datapath"));
    }
}

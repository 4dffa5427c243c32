//! One L4 listener, as all workers share it.

use std::net::IpAddr;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::TcpConfig;
use super::counts::Counts;
use super::maglev::Maglev;
use crate::backend::BackendSet;
use crate::policy::Member;
use crate::types::{BackendState, Progress};

/// One L4 listener: its settings, its backends and what it has counted.
#[derive(Debug)]
pub struct TcpService {
    pub(super) config: TcpConfig,
    backends: Arc<BackendSet>,
    table: Maglev,
    pub(super) counts: Counts,
    /// The clients' bytes, by backend.
    pub(super) sent: Vec<Arc<Progress>>,
}

impl TcpService {
    /// A listener that has served nothing yet.
    #[must_use]
    pub fn new(config: TcpConfig) -> TcpService {
        let backends = BackendSet::new(config.backends.clone());
        let members: Vec<Member<'_>> = backends.members().collect();
        let table = Maglev::new(&members);
        TcpService {
            table,
            sent: members.iter().map(|_| Arc::default()).collect(),
            backends: Arc::new(backends),
            counts: Counts::default(),
            config,
        }
    }

    /// Its backends, for those who watch over them.
    #[must_use]
    pub fn backends(&self) -> &Arc<BackendSet> {
        &self.backends
    }

    /// What the operator said of it.
    #[must_use]
    pub fn config(&self) -> &TcpConfig {
        &self.config
    }

    /// The key's backend among those that are fit and not `tried`.
    pub(super) fn choose(&self, key: u64, tried: &[usize]) -> Option<usize> {
        let fit = |index: &usize| {
            let backend = self.backends.backends.get(*index);
            !tried.contains(index) && backend.is_some_and(|backend| backend.state() == BackendState::Healthy)
        };
        // Asked first, since a walk in vain goes all around.
        if !(0..self.backends.backends.len()).any(|index| fit(&index)) {
            return None;
        }
        self.table.walk(key).find(fit)
    }
}

/// The key of a client's address. The port doesn't count, so that a client's connections stay together.
pub(super) fn source_key(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => xxh3_64(&ip.octets()),
        IpAddr::V6(ip) => xxh3_64(&ip.octets()),
    }
}

/// The key of a server name in lower case.
pub(super) fn name_key(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendConfig;

    fn service(count: u16) -> TcpService {
        let backend = |index| BackendConfig {
            name: format!("b{index}"),
            addr: ([127, 0, 0, 1], 7000 + index).into(),
            weight: 1,
            max_in_flight: None,
            max_waiting: 16,
        };
        TcpService::new(TcpConfig {
            backends: (0..count).map(backend).collect(),
            ..TcpConfig::default()
        })
    }

    #[test]
    fn unfit_draining_and_tried_backends_are_passed_over_and_get_their_keys_back() {
        let service = service(4);
        let key = source_key([192, 0, 2, 7].into());
        let order: Vec<usize> = (0..4).fold(Vec::new(), |mut tried, _| {
            tried.push(service.choose(key, &tried).expect("one is left"));
            tried
        });
        assert_eq!(service.choose(key, &order), None);
        let backend = |place: usize| &service.backends().backends[order[place]];
        backend(0).set_health(BackendState::Unhealthy, false);
        assert_eq!(service.choose(key, &[]), Some(order[1]));
        backend(1).set_draining(true);
        assert_eq!(service.choose(key, &[]), Some(order[2]));
        backend(2).set_state(BackendState::Stalled);
        assert_eq!(service.choose(key, &[order[3]]), None);
        backend(0).set_health(BackendState::Healthy, false);
        backend(1).set_draining(false);
        assert_eq!(service.choose(key, &[]), Some(order[0]));
        assert_eq!(service.choose(key, &[order[0]]), Some(order[1]));
    }

    #[test]
    fn an_address_has_one_key_in_both_of_its_forms() {
        let mapped = "::ffff:192.0.2.7".parse().expect("an address");
        assert_eq!(source_key([192, 0, 2, 7].into()), source_key(mapped));
        assert_ne!(source_key([192, 0, 2, 8].into()), source_key(mapped));
    }
}

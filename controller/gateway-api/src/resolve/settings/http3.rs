//! Ports whose HTTPS listeners are also served over HTTP/3.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema::{Port, Protocol, TlsTermination, Transport};

use super::clients::{listed, unknown};
use crate::api::{Http3Mode, Http3Settings};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Http3Ports {
    enabled: bool,
    /// `None` for all ports with HTTPS listeners.
    ports: Option<BTreeSet<u32>>,
}

/// What HTTP/3 needs to know about a listener.
#[derive(Clone, Copy)]
pub(crate) struct OnPort<'l> {
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<&'l TlsTermination>,
}

impl<'l> OnPort<'l> {
    pub(super) fn of_snapshot(port: &'l Port) -> impl Iterator<Item = Self> {
        let number = u16::try_from(port.port).unwrap_or_default();
        port.listeners.iter().map(move |listener| Self {
            port: number,
            protocol: listener.protocol(),
            tls: listener.tls.as_ref(),
        })
    }
}

impl Http3Ports {
    /// An error starts with the name of the field in `spec.edge`.
    pub(super) fn read(settings: &Http3Settings) -> Result<Self, String> {
        let Http3Settings { mode, ports } = settings;
        let ports = ports.as_deref().map(|it| listed("http3", it)).transpose()?;
        match mode {
            None | Some(Http3Mode::Enabled) => Ok(Self {
                enabled: true,
                ports,
            }),
            Some(Http3Mode::Disabled) => Ok(Self::default()),
            Some(Http3Mode::Other(other)) => Err(unknown("http3.mode", other, Http3Mode::WORDS)),
        }
    }

    /// `excluded` returns true for ports that expect a PROXY protocol header.
    pub(super) fn select<'l>(
        &self,
        listeners: impl Iterator<Item = OnPort<'l>>,
        excluded: impl Fn(u16) -> bool,
        opened: impl Fn(u16) -> u16,
    ) -> BTreeMap<u16, Result<(), &'static str>> {
        let Self { enabled, ports } = self;
        let mut selected = BTreeMap::new();
        if !*enabled {
            return selected;
        }
        let mut taken = BTreeSet::new();
        for listener in listeners {
            let OnPort {
                port,
                protocol,
                tls,
            } = listener;
            if protocol == Protocol::RawUdp {
                taken.insert(opened(port));
            }
            let is_listed = |it: &BTreeSet<u32>| it.contains(&u32::from(port));
            if protocol == Protocol::Https && ports.as_ref().is_none_or(is_listed) {
                let serves = selected.entry(port).or_insert(Err(
                    "all its HTTPS listeners ask for client certificates, or limit the TLS version or ALPN",
                ));
                if tls.is_some_and(TlsTermination::allows_http3) {
                    *serves = Ok(());
                }
            }
        }
        for (port, serves) in &mut selected {
            if excluded(*port) {
                *serves = Err("datagrams have no PROXY protocol header");
            }
            if taken.contains(&opened(*port)) {
                *serves = Err("a UDP listener uses the port");
            }
        }
        selected
    }
}

/// Returns a UDP port for each port that is served over HTTP/3.
pub(super) fn add(selected: &BTreeMap<u16, Result<(), &'static str>>) -> Vec<Port> {
    let served = selected.iter().filter(|(_, serves)| serves.is_ok());
    let ports = served.map(|(port, _)| Port {
        transport: Transport::Udp.into(),
        port: (*port).into(),
        http3: true,
        ..Port::default()
    });
    ports.collect()
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::tls_termination::{ClientMode, Version};

    use super::*;

    fn on(port: u16, protocol: Protocol, tls: Option<&TlsTermination>) -> OnPort<'_> {
        OnPort {
            port,
            protocol,
            tls,
        }
    }

    fn served(settings: &Http3Settings, listeners: &[OnPort<'_>]) -> Vec<(u16, bool)> {
        let ports = Http3Ports::read(settings).expect("settings");
        let selected = ports.select(listeners.iter().copied(), |port| port == 446, |port| port);
        let served = selected.into_iter();
        served
            .map(|(port, serves)| (port, serves.is_ok()))
            .collect()
    }

    #[test]
    fn http3_needs_https_on_free_udp_port() {
        let tls = TlsTermination::default();
        let of_clients = TlsTermination {
            client_mode: ClientMode::OptionalUnverified.into(),
            ..TlsTermination::default()
        };
        let old = TlsTermination {
            max_version: Version::Tls12.into(),
            ..TlsTermination::default()
        };
        let all = [
            on(80, Protocol::Http, None),
            on(443, Protocol::Https, Some(&tls)),
            on(443, Protocol::Https, Some(&of_clients)),
            on(443, Protocol::Tls, None),
            on(444, Protocol::Https, Some(&of_clients)),
            on(445, Protocol::Https, Some(&old)),
            on(446, Protocol::Https, Some(&tls)),
            on(447, Protocol::Https, Some(&tls)),
            on(447, Protocol::RawUdp, None),
            on(448, Protocol::Https, Some(&tls)),
        ];
        let mut settings = Http3Settings::default();
        let expected = [
            (443, true),
            (444, false),
            (445, false),
            (446, false),
            (447, false),
        ];
        let everywhere = served(&settings, &all);
        assert_eq!(everywhere, [&expected[..], &[(448, true)]].concat());
        settings.ports = Some(vec![80, 443]);
        assert_eq!(served(&settings, &all), [(443, true)]);
        settings.mode = Some(Http3Mode::Disabled);
        assert_eq!(served(&settings, &all), []);
    }

    #[test]
    fn invalid_http3_names_field_and_value() {
        for (mode, ports, words) in [
            (
                Some("On"),
                None,
                "http3.mode: \"On\" is not one of Enabled, Disabled",
            ),
            (
                None,
                Some(vec![443, 0]),
                "http3.ports[1]: 0: expected 1 to 65535",
            ),
        ] {
            let mode = mode.map(Http3Mode::from);
            let read = Http3Ports::read(&Http3Settings { mode, ports });
            assert_eq!(read, Err(words.to_owned()));
        }
    }
}

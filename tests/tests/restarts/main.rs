//! Restarts, crashes, upgrades and changes under load. No request may fail.

mod apart;
mod clock_jumps;
mod envoy_versions;
mod http3_handover;
mod parked;
mod restart_drain;
mod restart_faults;
mod restart_history;
mod restart_hot;
mod restart_resources;
mod restart_streams;
mod stop;
mod succession;
mod supervisor;
mod survival;
mod switches;

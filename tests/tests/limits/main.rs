//! Hostile clients and manifests, and resource exhaustion.

mod bad_manifests;
mod bind_conflict;
mod budget;
mod edge;
mod floods;
mod hostile_callers;
mod inotify_used_up;
mod low_ports;
mod quarantine;
mod slow;

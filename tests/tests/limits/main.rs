//! Tests for hostile clients and manifests, and of resource exhaustion.
//!
//! | exhausted resource | effect | reported by | test |
//! |---|---|---|---|
//! | inotify instances | Envoy watches fewer files, and the agent polls | `status`, log, metrics, `doctor` | `inotify_used_up`, `budget` |
//! | the agent's descriptors | the agent retries every second | log | `restart_resources::agent_recovers_after_running_out_of_descriptors` |
//! | Envoy's descriptors | new connections and changes wait | `status` | `restart_resources::envoy_without_descriptors_serves_existing_connections` |
//! | descriptors on startup | the agent does not start with fewer than 512 | log | `floods::agent_refuses_to_start_with_few_descriptors` |
//! | `/dev/shm` | Envoy runs without hot restart | `status`, log, `doctor` | `shared_memory` |
//! | a port | only its listener waits | `status`, conditions, `doctor` | `bind_conflict`, `low_ports` |
//! | state directory | changes apply, but are not stored | `status`, `doctor` | `restart_resources::changes_apply_if_state_directory_is_not_writable` |
//! | runtime directory | changes wait; a dead Envoy is restarted | `status`, `doctor` | `restart_resources::change_waits_if_runtime_directory_is_full`, `killed_envoy_restarts_if_runtime_directory_is_full` |
//! | Envoy's memory | its heap limit rejects requests | 503, statistics | `floods::repeated_headers_do_not_fill_memory` |

mod bad_manifests;
mod bind_conflict;
mod budget;
mod drained_ports;
mod edge;
mod edge_ports;
mod edge_settings;
mod floods;
mod hold_draining;
mod hostile_callers;
mod http3_connections;
mod inotify_used_up;
mod low_ports;
mod quarantine;
mod shared_memory;
mod slow;

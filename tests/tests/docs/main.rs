//! The documentation is true: its links lead somewhere, an API server takes its objects, its tasks serve what they show, its commands
//! are taken, and its reference is what the code says.

mod commands;
mod links;
mod make_targets;
mod names;
mod objects;
mod pages;
mod quickstart;
mod reference;
mod shell;
mod shown;
mod stand_ins;
mod tasks;

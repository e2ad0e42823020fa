//! Keeps the documentation correct.

mod architecture;
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

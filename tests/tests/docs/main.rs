//! Keeps the documentation correct. Links resolve, an API server accepts the objects, commands
//! parse and print the output shown on the pages, and the reference matches the code.

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

//! Every subcommand as its user runs it: the binary, in a pipe.

mod admin;
mod apps;
mod config;
mod demo;
mod driver;
mod fetch;
mod help;
mod openmetrics;
mod operator;
mod run;
mod serve;

//! What every command that talks to a server can be told.

use crate::failure::Failure;
use crate::output::Format;
use baton_client::{Baton, BatonBuilder};

#[derive(clap::Args, Debug)]
pub struct ClientOptions {
    /// The server's address; several separated by commas
    #[arg(
        long,
        global = true,
        env = "BATON_SERVER",
        default_value = "http://127.0.0.1:7117",
        value_name = "URL"
    )]
    pub server: String,
    /// The namespace of locks, limits and all else [default: default]
    #[arg(long, global = true, env = "BATON_NAMESPACE")]
    pub namespace: Option<String>,
    /// How to print what was found
    #[arg(long, global = true, value_enum, default_value = "table")]
    pub output: Format,
}

impl ClientOptions {
    pub async fn connect(&self) -> Result<Baton, Failure> {
        self.connect_as(Baton::builder()).await
    }

    pub async fn connect_as(&self, mut builder: BatonBuilder) -> Result<Baton, Failure> {
        if let Some(namespace) = &self.namespace {
            builder = builder.namespace(namespace);
        }
        Ok(builder.connect(&self.server).await?)
    }
}

//! Which server has which group: the one there is, the one Sentinel names, or the one that has the slot.

use super::Unopened;
use super::codec::{Names, bytes};
use super::link::{CALL_MAX, Link};
use super::url::{Target, Topology};
use ::redis::{Cmd, Value, cmd};
use baton_core::Group;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};
use tokio::time::Instant;

const SLOTS: u16 = 16_384;

/// Where the groups are, as far as known.
pub(super) struct Routes {
    pub target: Target,
    links: Mutex<HashMap<(String, u16), Arc<Link>>>,
    /// One for each group.
    map: RwLock<Vec<Arc<Link>>>,
    refreshing: tokio::sync::Mutex<Instant>,
}

impl Routes {
    pub async fn find(target: Target) -> Result<Self, Unopened> {
        let refreshing = tokio::sync::Mutex::new(Instant::now());
        let (links, map) = (Mutex::default(), RwLock::default());
        let routes = Self { target, links, map, refreshing };
        if routes.target.topology == Topology::Single {
            let link = routes.link_to(&routes.target.addresses[0])?;
            *routes.map.write().expect("no panic while held") = vec![link; 256];
        } else {
            routes.refresh().await?;
        }
        Ok(routes)
    }

    /// The server that has `group`.
    pub fn link(&self, group: Group) -> Arc<Link> {
        self.map.read().expect("no panic while held")[usize::from(group.0)].clone()
    }

    /// Every server that has some group, once.
    pub fn all(&self) -> Vec<Arc<Link>> {
        let mut all: Vec<Arc<Link>> = Vec::new();
        for link in &*self.map.read().expect("no panic while held") {
            if !all.iter().any(|known| Arc::ptr_eq(known, link)) {
                all.push(link.clone());
            }
        }
        all
    }

    fn link_to(&self, address: &(String, u16)) -> Result<Arc<Link>, String> {
        let mut links = self.links.lock().expect("no panic while held");
        if let Some(link) = links.get(address) {
            return Ok(link.clone());
        }
        let link = Arc::new(Link::new(self.target.client(address)?));
        links.insert(address.clone(), link.clone());
        Ok(link)
    }

    /// Asks again who has what. Whether that has changed.
    pub async fn refresh(&self) -> Result<bool, Unopened> {
        let asked = Instant::now();
        let mut refreshed = self.refreshing.lock().await;
        if *refreshed > asked {
            return Ok(false);
        }
        let found = match &self.target.topology {
            Topology::Single => return Ok(false),
            Topology::Sentinel { master } => self.ask_sentinels(master).await?,
            Topology::Cluster => self.ask_cluster().await?,
        };
        *refreshed = Instant::now();
        self.links.lock().expect("no panic while held").retain(|_, link| Arc::strong_count(link) > 1);
        let mut map = self.map.write().expect("no panic while held");
        let same = map.len() == found.len() && map.iter().zip(&found).all(|(a, b)| Arc::ptr_eq(a, b));
        *map = found;
        Ok(!same)
    }

    async fn ask_sentinels(&self, master: &str) -> Result<Vec<Arc<Link>>, Unopened> {
        let mut why = Unopened::Unreachable(String::new());
        for address in &self.target.addresses {
            let mut question = cmd("SENTINEL");
            question.arg("get-master-addr-by-name").arg(master);
            match ask(&Link::new(self.target.sentinel(address)?), &question).await {
                Ok(Value::Array(parts)) => {
                    let mut parts = parts.into_iter().filter_map(bytes);
                    if let (Some(host), Some(port)) = (parts.next(), parts.next())
                        && let Ok(host) = String::from_utf8(host)
                        && let Some(port) = std::str::from_utf8(&port).ok().and_then(|port| port.parse().ok())
                    {
                        return Ok(vec![self.link_to(&(host, port))?; 256]);
                    }
                }
                Ok(_) => why = format!("{}:{} knows no primary of that name", address.0, address.1).into(),
                Err(trouble) => why = why.or(trouble),
            }
        }
        Err(why.because("no Sentinel says who the primary is"))
    }

    async fn ask_cluster(&self) -> Result<Vec<Arc<Link>>, Unopened> {
        let mut links = self.all();
        for address in &self.target.addresses {
            links.push(self.link_to(address)?);
        }
        let mut why = Unopened::Unreachable(String::new());
        let mut question = cmd("CLUSTER");
        question.arg("SLOTS");
        for link in links {
            match ask(&link, &question).await {
                Ok(Value::Array(ranges)) => match self.slots(ranges)? {
                    Some(map) => return Ok(map),
                    None => {
                        let detail = format!("{}: some slots have no server", link.address);
                        why = why.or(Unopened::Unreachable(detail));
                    }
                },
                Ok(_) => why = format!("{}: strange slots", link.address).into(),
                Err(trouble) => why = why.or(trouble),
            }
        }
        Err(why.because("no server of the cluster says who has what"))
    }

    fn slots(&self, ranges: Vec<Value>) -> Result<Option<Vec<Arc<Link>>>, String> {
        let mut known = Vec::new();
        for range in ranges {
            let Value::Array(range) = range else { continue };
            let [Value::Int(from), Value::Int(to), Value::Array(node), ..] = &range[..] else { continue };
            let [Value::BulkString(host), Value::Int(port), ..] = &node[..] else { continue };
            let (Ok(host), Ok(port)) = (String::from_utf8(host.clone()), u16::try_from(*port)) else {
                continue;
            };
            known.push((*from..=*to, self.link_to(&(host, port))?));
        }
        let owner = |group: Group| {
            let slot = i64::from(slot(&self.target.prefix, group));
            known.iter().find(|(range, _)| range.contains(&slot)).map(|(_, link)| link.clone())
        };
        Ok(Group::all().map(owner).collect())
    }
}

async fn ask(link: &Link, question: &Cmd) -> Result<Value, Unopened> {
    let mut connection = link.connect(|_| ()).await?;
    let answer = tokio::time::timeout(CALL_MAX, connection.send_packed_command(question)).await;
    let answer = answer.map_err(|_| Unopened::Unreachable(format!("{}: no answer", link.address)))?;
    answer.and_then(Value::extract_error).map_err(|error| link.unopened(&error))
}

/// The slot of a group's keys: CRC-16 (XMODEM) of what is between the braces.
fn slot(prefix: &str, group: Group) -> u16 {
    let key = Names::new(prefix, group).counter();
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).expect("names have a tag").0;
    let step = |crc: u16, byte: u8| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    };
    tag.bytes().fold(0, step) % SLOTS
}

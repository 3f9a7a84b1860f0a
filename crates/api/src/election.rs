//! The bodies of `/v1/elections`.

use crate::error::ErrorBody;
use crate::limits;
use crate::lock::Metadata;
use serde::{Deserialize, Serialize};

/// A leader's lease, unless the campaign says another.
pub const TTL_MILLIS_DEFAULT: u64 = 10_000;

fn ttl_millis_default() -> u64 {
    TTL_MILLIS_DEFAULT
}

fn yes() -> bool {
    true
}

/// `POST /v1/elections/{name}/campaign`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CampaignRequest {
    /// Who wants to lead: shown to others, checked on resignation.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub candidate_id: String,
    /// How long the lease lasts if not renewed: when the leader dies, the next one leads this much later.
    #[serde(default = "ttl_millis_default")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000, default = 10_000))]
    pub ttl_millis: u64,
    /// Whether to stand by until it is this candidate's turn; if not, somebody else's leading is a refusal.
    #[serde(default = "yes")]
    #[cfg_attr(feature = "openapi", schema(default = true))]
    pub wait: bool,
    /// How long to stand by at most; without it, until elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 600_000))]
    pub wait_timeout_millis: Option<u64>,
    /// What everybody may know of this leader: its address, its build. At most 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub value: Option<Metadata>,
    /// Among those who stand by, higher priorities lead first. It deposes nobody.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(minimum = -1000, maximum = 1000, default = 0))]
    pub priority: i16,
    /// Makes a repeated call give the same answer. The server makes one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
}

impl CampaignRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("candidateId", &self.candidate_id, limits::OWNER_BYTES)?;
        limits::check_number("ttlMillis", self.ttl_millis, limits::TTL_MILLIS)?;
        if let Some(wait) = self.wait_timeout_millis {
            limits::check_number("waitTimeoutMillis", wait, limits::WAIT_TIMEOUT_MILLIS)?;
        }
        if let Some(id) = &self.request_id {
            limits::check_text("requestId", id, limits::REQUEST_ID_BYTES)?;
        }
        if !limits::PRIORITY.contains(&self.priority) {
            let (min, max) = (limits::PRIORITY.start(), limits::PRIORITY.end());
            let message = format!("priority must be {min} to {max}, not {}", self.priority);
            return Err(ErrorBody::invalid("priority", message));
        }
        check_value(self.value.as_ref())
    }
}

fn check_value(value: Option<&Metadata>) -> Result<(), ErrorBody> {
    let Some(value) = value else { return Ok(()) };
    let bytes = serde_json::to_string(value).map_or(usize::MAX, |text| text.len());
    if bytes > limits::METADATA_BYTES_MAX {
        let max = limits::METADATA_BYTES_MAX;
        let message = format!("value must have at most {max} bytes as compact JSON, not {bytes}");
        return Err(ErrorBody::invalid("value", message));
    }
    Ok(())
}

fn check_leader(token: &str, candidate: &str) -> Result<(), ErrorBody> {
    limits::check_text("leaderToken", token, limits::LOCK_TOKEN_BYTES)?;
    limits::check_text("candidateId", candidate, limits::OWNER_BYTES)
}

/// The candidate leads.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CampaignResponse {
    /// The election.
    pub election: String,
    /// Always `true`.
    pub leader: bool,
    /// Who leads.
    pub candidate_id: String,
    /// Grows with every leader of this election: send it with everything, and let receivers refuse lower ones.
    pub epoch: u64,
    /// Proves leadership. A secret: whoever has it can resign.
    pub leader_token: String,
    /// When the lease ends if not renewed, in milliseconds since the Unix epoch by the store's clock; for display.
    pub expires_at: u64,
    /// How long the lease lasts.
    pub ttl_millis: u64,
}

impl std::fmt::Debug for CampaignResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CampaignResponse")
            .field("election", &self.election)
            .field("candidate_id", &self.candidate_id)
            .field("epoch", &self.epoch)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// `POST /v1/elections/{name}/renew`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewLeaderRequest {
    /// From the campaign.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub leader_token: String,
    /// The same as in the campaign.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub candidate_id: String,
    /// The lease then ends this long from now, or when it would have anyway: renewing never shortens.
    #[serde(default = "ttl_millis_default")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000, default = 10_000))]
    pub ttl_millis: u64,
}

impl RenewLeaderRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_leader(&self.leader_token, &self.candidate_id)?;
        limits::check_number("ttlMillis", self.ttl_millis, limits::TTL_MILLIS)
    }
}

/// The leader's lease was renewed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RenewLeaderResponse {
    /// The election.
    pub election: String,
    /// The same as before.
    pub epoch: u64,
    /// When the lease now ends.
    pub expires_at: u64,
}

/// `POST /v1/elections/{name}/proclaim`
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProclaimRequest {
    /// From the campaign.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub leader_token: String,
    /// The same as in the campaign.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub candidate_id: String,
    /// Takes the place of the leader's value. At most 4 KiB.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub value: Metadata,
}

impl ProclaimRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_leader(&self.leader_token, &self.candidate_id)?;
        check_value(Some(&self.value))
    }
}

/// The leader's value is the new one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProclaimResponse {
    /// Always `PROCLAIMED`.
    pub status: String,
    /// The election.
    pub election: String,
    /// The same as before.
    pub epoch: u64,
}

/// `POST /v1/elections/{name}/resign`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResignRequest {
    /// From the campaign.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub leader_token: String,
    /// The same as in the campaign.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub candidate_id: String,
    /// The candidate who is to lead next, before all others. If it doesn't stand by, nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub successor: Option<String>,
    /// Makes a repeated call give the same answer; without it, the leaderToken does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
}

impl ResignRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_leader(&self.leader_token, &self.candidate_id)?;
        if let Some(successor) = &self.successor {
            limits::check_text("successor", successor, limits::OWNER_BYTES)?;
        }
        match &self.request_id {
            Some(id) => limits::check_text("requestId", id, limits::REQUEST_ID_BYTES),
            None => Ok(()),
        }
    }
}

/// The leader has resigned, now or by an earlier try.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResignResponse {
    /// Always `RESIGNED`.
    pub status: String,
    /// The election.
    pub election: String,
}

/// `GET /v1/elections/{name}` when somebody leads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ElectionStatus {
    /// The election.
    pub election: String,
    /// Who leads.
    pub leader: String,
    /// The leader's epoch.
    pub epoch: u64,
    /// What the leader says of itself.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub value: Metadata,
    /// Since when it leads.
    pub since: u64,
    /// When its lease ends if not renewed.
    pub expires_at: u64,
    /// The lease's length, as granted.
    pub ttl_millis: u64,
    /// How often the lease was renewed.
    pub renewals: u64,
    /// How many stand by.
    pub candidate_count: u64,
    /// Who stands by, next first: a page of them.
    pub candidates: Vec<Candidate>,
    /// Where the next page of candidates begins; `null` on the last.
    pub next_cursor: Option<String>,
}

/// Someone who stands by.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Who.
    pub candidate_id: String,
    /// As it campaigned; absent for a successor that was named, who comes before all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// Since when, in milliseconds since the Unix epoch.
    pub since: u64,
    /// For how long.
    pub waiting_millis: u64,
    /// Whether its call is still there; if not, its place is kept for a while.
    pub connected: bool,
}

/// `GET /v1/elections`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ElectionList {
    /// Elections that somebody leads, in an order that is stable from page to page.
    pub elections: Vec<ElectionSummary>,
    /// Where the next page begins; `null` on the last.
    pub next_cursor: Option<String>,
}

/// One election of a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ElectionSummary {
    /// The election.
    pub election: String,
    /// Who leads.
    pub leader: String,
    /// The leader's epoch.
    pub epoch: u64,
    /// When its lease ends if not renewed.
    pub expires_at: u64,
    /// How many stand by.
    pub candidate_count: u64,
}

/// What an observer hears.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ElectionEventKind {
    /// This one leads: told at the beginning, when it is elected, and when its value changes.
    Leader,
    /// This one led meanwhile, and doesn't any more: told after a gap.
    Past,
    /// Nobody leads.
    Vacant,
}

impl ElectionEventKind {
    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Past => "past",
            Self::Vacant => "vacant",
        }
    }
}

/// Who leads now: on `/observe`, as the data of a server-sent event whose id is the epoch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ElectionEvent {
    /// What.
    pub event: ElectionEventKind,
    /// The election.
    pub election: String,
    /// Who leads, or led.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The leader's epoch; if nobody leads, the last leader's, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// What the leader says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub value: Option<Metadata>,
    /// Since when it leads, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_needs_no_more_than_a_candidate() {
        let campaign: CampaignRequest = serde_json::from_str(r#"{"candidateId":"a"}"#).unwrap();
        assert!(campaign.check().is_ok() && campaign.wait);
        assert_eq!((campaign.ttl_millis, campaign.priority), (10_000, 0));
        assert!(serde_json::from_str::<CampaignRequest>(r#"{"candidateId":"a","reentrant":true}"#).is_err());
    }

    #[test]
    fn what_is_out_of_bounds_is_named() {
        let base: CampaignRequest = serde_json::from_str(r#"{"candidateId":"a"}"#).unwrap();
        let big: Metadata = [("k".to_owned(), "x".repeat(4096).into())].into_iter().collect();
        for (campaign, field) in [
            (CampaignRequest { candidate_id: String::new(), ..base.clone() }, "candidateId"),
            (CampaignRequest { ttl_millis: 99, ..base.clone() }, "ttlMillis"),
            (CampaignRequest { wait_timeout_millis: Some(600_001), ..base.clone() }, "waitTimeoutMillis"),
            (CampaignRequest { priority: 1001, ..base.clone() }, "priority"),
            (CampaignRequest { priority: -1001, ..base.clone() }, "priority"),
            (CampaignRequest { request_id: Some(String::new()), ..base.clone() }, "requestId"),
            (CampaignRequest { value: Some(big), ..base.clone() }, "value"),
        ] {
            assert_eq!(campaign.check().unwrap_err().field.as_deref(), Some(field));
        }
    }

    #[test]
    fn a_leader_is_printed_without_its_token() {
        let response = CampaignResponse {
            election: "e".into(),
            leader: true,
            candidate_id: "c".into(),
            epoch: 1,
            leader_token: "secret".into(),
            expires_at: 2,
            ttl_millis: 3,
        };
        assert!(!format!("{response:?}").contains("secret"));
    }
}

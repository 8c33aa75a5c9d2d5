//! A rule is what RBAC must have for a request: a verb and a resource.

use std::fmt;

/// What a request does, in RBAC's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    verb: &'static str,
    group: String,
    resource: String,
    subresource: Option<String>,
    /// Of the one object that it is about.
    name: String,
}

// === impl Rule ===

impl Rule {
    /// The rule for `GET /apis/<group>/<version>[/namespaces/<namespace>]/<resource>[/<name>[/<subresource>]][?…]`;
    /// none where that is no request for a resource.
    pub(super) fn of(asked: &str) -> Option<Self> {
        let (method, path) = asked.split_once(' ')?;
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut parts = path.trim_start_matches('/').split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        parts.next()?;
        let mut resource = parts.next()?;
        let mut name = parts.next().unwrap_or_default();
        if let ("namespaces", Some(within)) = (resource, parts.clone().next()) {
            parts.next();
            (resource, name) = (within, parts.next().unwrap_or_default());
        }
        let subresource = parts.next().map(str::to_owned);
        let verb = match (method, name) {
            ("GET", _) if query.split('&').any(|one| one == "watch=1") => "watch",
            ("GET", "") => "list",
            ("GET", _) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", _) => "delete",
            _ => return None,
        };
        let (group, resource, name) = (group.to_owned(), resource.to_owned(), name.to_owned());
        Some(Self { verb, group, resource, subresource, name })
    }

    /// Whether an answer that there is none means the object of this rule: a server without the
    /// resource, or a proxy before it, says so of anything.
    pub(super) fn is_absent(&self, status: &kube::core::Status) -> bool {
        let details = status.details.as_ref();
        status.code == 404
            && status.reason == "NotFound"
            && details.is_some_and(|of| {
                of.kind == self.resource && of.group == self.group && of.name == self.name
            })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.verb, self.resource)?;
        if let Some(subresource) = &self.subresource {
            write!(f, "/{subresource}")?;
        }
        match self.group.as_str() {
            "" => Ok(()),
            group => write!(f, " of {group}"),
        }
    }
}

#[cfg(test)]
mod tests;

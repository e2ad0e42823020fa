use super::{Condition, ConditionStatus, ConditionType};

impl Condition {
    /// Returns true if the condition reports a problem.
    pub fn is_fault(&self) -> bool {
        self.type_.is_fault(self.status)
    }
}

impl ConditionType {
    /// Returns true if a condition of this type and status reports a problem. Advice, such as
    /// overlapping hostnames, does not count.
    pub fn is_fault(self, status: ConditionStatus) -> bool {
        match self {
            Self::Accepted
            | Self::Valid
            | Self::Programmed
            | Self::ResolvedRefs
            | Self::CertificatesValid
            | Self::CertificatesShown
            | Self::GatewayService
            | Self::GatewayFleet
            | Self::AddressesAssigned
            | Self::Meshed
            | Self::ClientCertificateTrusted
            | Self::SupportedVersion => status != ConditionStatus::True,
            Self::Conflicted | Self::PartiallyInvalid | Self::Displaced => {
                status == ConditionStatus::True
            }
            Self::OverlappingTlsConfig
            | Self::InsecureFrontendValidationMode
            | Self::TrafficPolicyAffected
            | Self::AccessPolicyAffected
            | Self::FleetReleased => false,
        }
    }
}

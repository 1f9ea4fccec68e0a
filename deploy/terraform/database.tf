resource "google_firestore_database" "counters" {
  name        = var.name
  location_id = var.database_location
  type        = "DATASTORE_MODE"

  # OPTIMISTIC_WITH_ENTITY_GROUPS has no TTL policy, and aggregators refuse it.
  concurrency_mode = "PESSIMISTIC"

  delete_protection_state = var.protected ? "DELETE_PROTECTION_ENABLED" : "DELETE_PROTECTION_DISABLED"
  deletion_policy         = local.deletion

  depends_on = [google_project_service.apis]
}

# Only these policies remove markers, records and rows of the journal, references to dead letters, and workers that have
# ended. The property has no index, so there is nothing to exempt: no index_config.
resource "google_firestore_field" "expiring" {
  for_each = toset(["CountmillJournal", "CountmillJournalrow", "CountmillLetterref", "CountmillMarker", "CountmillWorker"])

  database   = google_firestore_database.counters.name
  collection = each.key
  field      = "expire_at"

  ttl_config {}
}

output "publisher_url" {
  description = "For POST /v1/increments."
  value       = google_cloud_run_v2_service.publisher.uri
}

output "reader_url" {
  description = "For totals, and for the page."
  value       = google_cloud_run_v2_service.reader.uri
}

output "accounts" {
  description = "Service accounts of the roles. A service in Go that imports the publisher needs the roles of the first one."
  value = {
    publisher  = google_service_account.publisher.email
    aggregator = google_service_account.aggregator.email
    indexer    = google_service_account.indexer.email
    reader     = google_service_account.reader.email
  }
}

# The least roles of each account. viewer: to check, at the start and while running, that topic and
# subscription are right.

resource "google_service_account" "publisher" {
  account_id   = "${var.name}-publisher"
  display_name = "countmill publisher"

  depends_on = [google_project_service.apis]
}

resource "google_service_account" "aggregator" {
  account_id   = "${var.name}-aggregator"
  display_name = "countmill aggregator"

  depends_on = [google_project_service.apis]
}

resource "google_service_account" "indexer" {
  account_id   = "${var.name}-indexer"
  display_name = "countmill index work"

  depends_on = [google_project_service.apis]
}

resource "google_service_account" "reader" {
  account_id   = "${var.name}-reader"
  display_name = "countmill reader"

  depends_on = [google_project_service.apis]
}

resource "google_pubsub_topic_iam_member" "publisher" {
  for_each = toset(["roles/pubsub.publisher", "roles/pubsub.viewer"])

  topic  = google_pubsub_topic.increments.name
  role   = each.key
  member = google_service_account.publisher.member
}

resource "google_pubsub_subscription_iam_member" "aggregator" {
  for_each = toset(["roles/pubsub.subscriber", "roles/pubsub.viewer"])

  subscription = google_pubsub_subscription.increments.name
  role         = each.key
  member       = google_service_account.aggregator.member
}

resource "google_pubsub_subscription_iam_member" "aggregator_dead" {
  for_each = toset(["roles/pubsub.subscriber", "roles/pubsub.viewer"])

  subscription = google_pubsub_subscription.dead.name
  role         = each.key
  member       = google_service_account.aggregator.member
}

resource "google_project_iam_member" "aggregator" {
  project = var.project
  role    = "roles/datastore.user"
  member  = google_service_account.aggregator.member
}

resource "google_project_iam_member" "indexer" {
  project = var.project
  role    = "roles/datastore.user"
  member  = google_service_account.indexer.member
}

resource "google_project_iam_member" "reader" {
  project = var.project
  role    = var.reader_changes ? "roles/datastore.user" : "roles/datastore.viewer"
  member  = google_service_account.reader.member
}

# Pub/Sub's own account moves the dead letters.
locals {
  agent = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}

resource "google_pubsub_topic_iam_member" "agent" {
  topic  = google_pubsub_topic.dead.name
  role   = "roles/pubsub.publisher"
  member = local.agent
}

resource "google_pubsub_subscription_iam_member" "agent" {
  subscription = google_pubsub_subscription.increments.name
  role         = "roles/pubsub.subscriber"
  member       = local.agent
}

resource "google_secret_manager_secret_iam_member" "tokens" {
  for_each = {
    publisher  = google_service_account.publisher.member
    aggregator = google_service_account.aggregator.member
    indexer    = google_service_account.indexer.member
    reader     = google_service_account.reader.member
  }

  secret_id = google_secret_manager_secret.tokens.id
  role      = "roles/secretmanager.secretAccessor"
  member    = each.value
}

resource "google_cloud_run_v2_service_iam_member" "publisher" {
  for_each = var.invokers

  name     = google_cloud_run_v2_service.publisher.name
  location = var.region
  role     = "roles/run.invoker"
  member   = each.value
}

resource "google_cloud_run_v2_service_iam_member" "reader" {
  for_each = var.invokers

  name     = google_cloud_run_v2_service.reader.name
  location = var.region
  role     = "roles/run.invoker"
  member   = each.value
}

locals {
  # Destroying one of these loses accepted increments.
  deletion = var.protected ? "PREVENT" : "DELETE"
}

resource "google_pubsub_topic" "increments" {
  name            = var.name
  deletion_policy = local.deletion

  depends_on = [google_project_service.apis]
}

resource "google_pubsub_subscription" "increments" {
  name                       = var.name
  topic                      = google_pubsub_topic.increments.id
  ack_deadline_seconds       = 10
  message_retention_duration = "604800s"
  deletion_policy            = local.deletion

  # Increments commute, and markers in the store make repeats harmless. A filter would drop messages uncounted.
  enable_message_ordering      = false
  enable_exactly_once_delivery = false

  expiration_policy {
    ttl = "" # never
  }

  retry_policy {
    minimum_backoff = "1s"
    maximum_backoff = "10s"
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead.id
    max_delivery_attempts = 100
  }
}

# Messages that Pub/Sub gave up. Aggregators take them into countmill's dead letters.
resource "google_pubsub_topic" "dead" {
  name            = "${var.name}-dead"
  deletion_policy = local.deletion

  depends_on = [google_project_service.apis]
}

# A topic without a subscription drops its messages.
resource "google_pubsub_subscription" "dead" {
  name                       = "${var.name}-dead"
  topic                      = google_pubsub_topic.dead.id
  message_retention_duration = "604800s"
  deletion_policy            = local.deletion

  expiration_policy {
    ttl = "" # never
  }
}

locals {
  port  = 8080
  bus   = "pubsub://${var.project}/${google_pubsub_topic.increments.name}"
  store = "datastore://${var.project}/${google_firestore_database.counters.name}"

  # Cloud Run kills a process 10 s after it asked it to stop.
  common = ["--listen", "0.0.0.0:${local.port}", "--tokens", "/etc/countmill/tokens", "--shutdown-timeout", "8s"]

  queues = "subscription=${google_pubsub_subscription.increments.name}&dead_letter=${google_pubsub_subscription.dead.name}"
  cache  = [for c in google_memcache_instance.cache : "--cache=memcached://${c.memcache_nodes[0].host}:${c.memcache_nodes[0].port}"]
}

resource "google_secret_manager_secret" "tokens" {
  secret_id = "${var.name}-tokens"

  replication {
    auto {}
  }

  depends_on = [google_project_service.apis]
}

# Processes read the newest version. create_before_destroy: there is always one.
resource "google_secret_manager_secret_version" "tokens" {
  secret      = google_secret_manager_secret.tokens.id
  secret_data = file(var.tokens_file)

  lifecycle {
    create_before_destroy = true
  }
}

# Billed by requests: it answers after Pub/Sub has the increments, and needs no CPU after that.
resource "google_cloud_run_v2_service" "publisher" {
  name                = "${var.name}-publisher"
  location            = var.region
  deletion_protection = false # it holds nothing

  template {
    service_account = google_service_account.publisher.email

    scaling {
      min_instance_count = var.publishers.min
      max_instance_count = var.publishers.max
    }

    containers {
      image = var.image
      args  = concat(["publisher", "--bus", local.bus], local.common)

      ports {
        container_port = local.port
      }

      resources {
        limits   = { cpu = "1", memory = var.memory.publisher }
        cpu_idle = true
      }

      startup_probe {
        period_seconds    = 2
        failure_threshold = 120

        http_get {
          path = "/healthz"
        }
      }

      # Not /readyz: a restart would not bring Pub/Sub back.
      liveness_probe {
        period_seconds    = 10
        timeout_seconds   = 5
        failure_threshold = 6

        http_get {
          path = "/healthz"
        }
      }

      readiness_probe {
        period_seconds  = 10
        timeout_seconds = 5

        http_get {
          path = "/readyz"
        }
      }

      volume_mounts {
        name       = "tokens"
        mount_path = "/etc/countmill"
      }
    }

    volumes {
      name = "tokens"

      secret {
        secret       = google_secret_manager_secret.tokens.secret_id
        default_mode = 292 # 0444: countmill refuses a file that others may write

        items {
          path    = "tokens"
          version = "latest"
        }
      }
    }
  }

  depends_on = [
    google_pubsub_subscription.increments, # a message published without one is lost
    google_pubsub_topic_iam_member.publisher,
    google_secret_manager_secret_iam_member.tokens,
    google_secret_manager_secret_version.tokens,
  ]
}

# Billed by requests: a reader works for its callers only.
resource "google_cloud_run_v2_service" "reader" {
  name                = "${var.name}-reader"
  location            = var.region
  deletion_protection = false # it holds nothing

  template {
    service_account = google_service_account.reader.email
    timeout         = "3600s" # /v1/watch ends then, and clients connect again

    scaling {
      min_instance_count = var.readers.min
      max_instance_count = var.readers.max
    }

    containers {
      image = var.image
      args  = concat(["reader", "--store", local.store], local.cache, local.common)

      ports {
        container_port = local.port
      }

      resources {
        limits   = { cpu = "1", memory = var.memory.reader }
        cpu_idle = true
      }

      startup_probe {
        period_seconds    = 2
        failure_threshold = 120

        http_get {
          path = "/healthz"
        }
      }

      # Not /readyz: a restart would not bring the database back.
      liveness_probe {
        period_seconds    = 10
        timeout_seconds   = 5
        failure_threshold = 6

        http_get {
          path = "/healthz"
        }
      }

      readiness_probe {
        period_seconds  = 10
        timeout_seconds = 5

        http_get {
          path = "/readyz"
        }
      }

      volume_mounts {
        name       = "tokens"
        mount_path = "/etc/countmill"
      }
    }

    volumes {
      name = "tokens"

      secret {
        secret       = google_secret_manager_secret.tokens.secret_id
        default_mode = 292 # 0444: countmill refuses a file that others may write

        items {
          path    = "tokens"
          version = "latest"
        }
      }
    }

    # Only the cache has a private address. Google's APIs are reached as without a network.
    dynamic "vpc_access" {
      for_each = google_compute_subnetwork.cache

      content {
        egress = "PRIVATE_RANGES_ONLY"

        network_interfaces {
          network    = vpc_access.value.network
          subnetwork = vpc_access.value.id
        }
      }
    }
  }

  depends_on = [
    google_cloud_run_v2_worker_pool.aggregator, # the first one writes the record that readers look for
    google_project_iam_member.reader,
    google_secret_manager_secret_iam_member.tokens,
    google_secret_manager_secret_version.tokens,
  ]
}

# Aggregators fold all the time, so they are a worker pool: always on, and without a URL.
resource "google_cloud_run_v2_worker_pool" "aggregator" {
  name                = "${var.name}-aggregator"
  location            = var.region
  deletion_protection = false # it holds nothing

  scaling {
    manual_instance_count = var.aggregators
  }

  template {
    service_account = google_service_account.aggregator.email

    containers {
      image = var.image
      args = concat(
        ["aggregator", "--bus", "${local.bus}?${local.queues}", "--store", local.store],
        local.common,
        var.first_start ? ["--create"] : [],
      )

      resources {
        limits = { cpu = "1", memory = var.memory.aggregator }
      }

      startup_probe {
        period_seconds    = 2
        failure_threshold = 120

        http_get {
          path = "/healthz"
          port = local.port
        }
      }

      # Not /readyz: a restart would bring neither Pub/Sub nor the database back.
      liveness_probe {
        period_seconds    = 10
        timeout_seconds   = 5
        failure_threshold = 6

        http_get {
          path = "/healthz"
          port = local.port
        }
      }

      volume_mounts {
        name       = "tokens"
        mount_path = "/etc/countmill"
      }
    }

    volumes {
      name = "tokens"

      secret {
        secret       = google_secret_manager_secret.tokens.secret_id
        default_mode = 292 # 0444: countmill refuses a file that others may write

        items {
          path    = "tokens"
          version = "latest"
        }
      }
    }
  }

  depends_on = [
    google_firestore_field.expiring,
    google_project_iam_member.aggregator,
    google_pubsub_subscription_iam_member.aggregator,
    google_pubsub_subscription_iam_member.aggregator_dead,
    google_pubsub_subscription_iam_member.agent,
    google_pubsub_topic_iam_member.agent,
    google_secret_manager_secret_iam_member.tokens,
    google_secret_manager_secret_version.tokens,
  ]
}

# Workers of indexes look for work all the time. Nobody sends them requests.
resource "google_cloud_run_v2_worker_pool" "indexer" {
  count = var.indexers == 0 ? 0 : 1

  name                = "${var.name}-indexer"
  location            = var.region
  deletion_protection = false # it holds nothing

  scaling {
    manual_instance_count = var.indexers
  }

  template {
    service_account = google_service_account.indexer.email

    containers {
      image = var.image
      args  = concat(["index", "work", "--store", local.store], local.common)

      resources {
        limits = { cpu = "1", memory = var.memory.indexer }
      }

      startup_probe {
        period_seconds    = 2
        failure_threshold = 120

        http_get {
          path = "/healthz"
          port = local.port
        }
      }

      # Not /readyz: a restart would not bring the database back.
      liveness_probe {
        period_seconds    = 10
        timeout_seconds   = 5
        failure_threshold = 6

        http_get {
          path = "/healthz"
          port = local.port
        }
      }

      volume_mounts {
        name       = "tokens"
        mount_path = "/etc/countmill"
      }
    }

    volumes {
      name = "tokens"

      secret {
        secret       = google_secret_manager_secret.tokens.secret_id
        default_mode = 292 # 0444: countmill refuses a file that others may write

        items {
          path    = "tokens"
          version = "latest"
        }
      }
    }
  }

  depends_on = [
    google_cloud_run_v2_worker_pool.aggregator, # the first one writes the record that workers look for
    google_project_iam_member.indexer,
    google_secret_manager_secret_iam_member.tokens,
    google_secret_manager_secret_version.tokens,
  ]
}

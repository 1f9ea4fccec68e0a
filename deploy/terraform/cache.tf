# Readers reach the node through a network of its own. With cache_mb = 0 nothing of this is made.
locals {
  cached = var.cache_mb > 0 ? 1 : 0
}

resource "google_compute_network" "cache" {
  count = local.cached

  name                    = var.name
  auto_create_subnetworks = false

  depends_on = [google_project_service.apis]
}

resource "google_compute_subnetwork" "cache" {
  count = local.cached

  name          = var.name
  network       = google_compute_network.cache[0].id
  region        = var.region
  ip_cidr_range = var.cache_subnet
}

resource "google_compute_global_address" "cache" {
  count = local.cached

  name          = "${var.name}-cache"
  network       = google_compute_network.cache[0].id
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  prefix_length = 24
}

resource "google_service_networking_connection" "cache" {
  count = local.cached

  network                 = google_compute_network.cache[0].id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.cache[0].name]
}

# One node: losing it costs reads of the database for a while, and no total.
resource "google_memcache_instance" "cache" {
  count = local.cached

  name                = var.name
  region              = var.region
  authorized_network  = google_service_networking_connection.cache[0].network
  memcache_version    = "MEMCACHE_1_6_15"
  node_count          = 1
  deletion_protection = false # it holds copies

  node_config {
    cpu_count      = 1
    memory_size_mb = var.cache_mb
  }
}
